package forkcore

import "fmt"

// Window compares the longest first request of a fan-out with what the model
// takes.
// Source: Messages API: input alone over the window is refused as "prompt is
// too long"; input and max_tokens together may be over it, the answer then ends
// with model_context_window_exceeded.
type Window struct {
	Model string `json:"-"`
	// Tokens is the model's window; 0 = not known, then nothing is refused.
	Tokens int64 `json:"window_tokens"`
	// SharedTokens and OwnTokens make up the longest first request, that of the child at Index.
	SharedTokens int64 `json:"shared_tokens"`
	OwnTokens    int64 `json:"own_tokens"`
	Index        int   `json:"index"`
	// Bytes is the longest first request's body, marks and settings included at their most.
	Bytes int64 `json:"-"`
	// OutputTokens is what an answer may have: max_tokens, at most what the model gives.
	OutputTokens int64 `json:"output_tokens"`
	// Exact is false while SharedTokens is estimated from bytes.
	Exact bool `json:"exact"`
	// Note is a warning in words, or that the window is not known; empty when all fits.
	Note string `json:"note,omitempty"`
}

func newWindow(info ModelInfo, q Quote, longest int, own, maxTokens int64) *Window {
	w := &Window{Model: q.Model, Tokens: info.Window, SharedTokens: q.SharedTokens, OwnTokens: own, Index: longest, OutputTokens: maxTokens, Exact: q.Exact}
	if own > 0 {
		w.Bytes = q.Unique[longest].Bytes
	}
	w.Bytes += q.SharedBytes + bodyMargin
	if info.MaxOutput > 0 {
		w.OutputTokens = min(maxTokens, info.MaxOutput)
	}
	switch over := w.InputTokens() + w.OutputTokens - w.Tokens; {
	case w.TooLarge():
		w.Note = w.tooLarge() + "."
	case w.Tokens == 0:
		w.Note = fmt.Sprintf("The window of %s is not known: nothing checks whether the forks fit.", w.Model)
	case w.TooLong():
		w.Note = w.refusal() + "."
	case over > 0:
		w.Note = fmt.Sprintf("The window has %s, %s are input: an answer is cut after %s, though up to %s may be asked for.",
			tokensText(w.Tokens), w.counted(Grouped(w.InputTokens())), Grouped(w.Tokens-w.InputTokens()), Grouped(w.OutputTokens))
	}
	return w
}

// bodyMargin is the most that marks, the settings after the messages and what
// joins them add to the canonical bytes of a request.
const bodyMargin = 512

// TooLarge reports whether the body is over the provider's limit, whatever its tokens: images are many bytes and few tokens.
func (w Window) TooLarge() bool { return w.Bytes > MaxBodyBytes }

func (w Window) tooLarge() string {
	return fmt.Sprintf("The dispatch would exceed the provider's limit for one request: it takes %s bytes, and directive %d would send %s", Grouped(MaxBodyBytes), w.Index+1, Grouped(w.Bytes))
}

// InputTokens is the longest first request.
func (w Window) InputTokens() int64 { return w.SharedTokens + w.OwnTokens }

// TooLong reports whether the input alone is over a known window.
func (w Window) TooLong() bool { return w.Tokens > 0 && w.InputTokens() > w.Tokens }

// counted calls an estimate one.
func (w Window) counted(count string) string {
	if w.Exact {
		return count
	}
	return "about " + count
}

func (w Window) refusal() string {
	return fmt.Sprintf("The dispatch would exceed the window of %s by %s: it takes %s of input, and directive %d would send %s, %s shared and %s of its own",
		w.Model, w.counted(tokensText(w.InputTokens()-w.Tokens)), Grouped(w.Tokens), w.Index+1, Grouped(w.InputTokens()), Grouped(w.SharedTokens), Grouped(w.OwnTokens))
}

// Refusal is the error for a dispatch that cannot be sent, a *ConflictError
// with all figures and the next step; nil when the input fits, or the window is
// not known and the body is not too large.
func (w Window) Refusal() error {
	if w.TooLarge() {
		return &ConflictError{Message: w.tooLarge(), NextStep: "Start a new session with a summary of this one, without its images, or let a named agent do it: that does not carry the conversation"}
	}
	if !w.TooLong() {
		return nil
	}
	next := "Start a new session with a summary of this one, or let a named agent do it: that does not carry the conversation"
	if w.SharedTokens < w.Tokens {
		next = fmt.Sprintf("Shorten directive %d by about %s, or put the text into a file that the fork reads in parts", w.Index+1, tokensText(w.InputTokens()-w.Tokens))
	}
	return &ConflictError{Message: w.refusal(), NextStep: next}
}
