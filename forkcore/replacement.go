package forkcore

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ReplacementTag marks the text that stands for a tool result that was too big.
const ReplacementTag = "persisted-output"

// ReplacementLimits bound what tool results put into a conversation. Result,
// Tools and Message count characters (runes), Preview counts bytes.
type ReplacementLimits struct {
	// Result is for one result of a tool that Tools does not name.
	Result int
	// Tools are limits of single tools; one above Result counts as Result, Unlimited leaves the tool to Message alone.
	Tools map[string]int
	// Message is for all results of one message: the largest make room.
	Message int
	// Preview is about how much of a replaced result is shown.
	Preview int
}

// Unlimited is the limit of a tool that bounds its results by itself.
const Unlimited = -1

// DefaultReplacementLimits are those that users of such agents are used to.
// Source: Claude Code's changelog (2.1.51: 50,000 a result) and public descriptions of its tool-result budget.
func DefaultReplacementLimits() ReplacementLimits {
	return ReplacementLimits{
		Result:  50_000,
		Tools:   map[string]int{"Bash": 30_000, "Grep": 100_000, "Edit": 100_000, "Read": Unlimited},
		Message: 200_000,
		Preview: 2_000,
	}
}

func (l ReplacementLimits) of(tool string) int {
	n, named := l.Tools[tool]
	switch {
	case !named:
		return l.Result
	case n == Unlimited:
		return math.MaxInt
	}
	return min(n, l.Result)
}

// Replacement is the decision about one tool result. It is taken once, before
// the result is first sent, and never again: whatever limits hold later, the
// history keeps its bytes.
type Replacement struct {
	ToolUseID string `json:"tool_use_id"`
	// Text is the digest of the text that was sent instead of the result; zero = the result was kept as it is.
	Text Digest `json:"text_sha256,omitzero"`
	// Blob is where the full result is stored, Characters and Bytes are its true size, and Shown is how many bytes of it the text shows.
	Blob       Digest `json:"blob,omitzero"`
	Characters int    `json:"characters,omitempty"`
	Bytes      int    `json:"bytes,omitempty"`
	Shown      int    `json:"shown,omitempty"`
}

// Replaced reports whether a text was sent instead of the result.
func (r Replacement) Replaced() bool { return !r.Text.IsZero() }

// ReplacementState holds the decisions about a conversation's tool results, in
// the order in which they were taken. It only grows by Freeze, and decisions
// never change, so a copy is safe to go on by itself.
type ReplacementState []Replacement

// Clone gives a state of one's own: what either freezes from now on the other
// does not see. Nothing is copied before that.
func (s ReplacementState) Clone() ReplacementState { return slices.Clip(s) }

// Find gives the decision about a call's result.
func (s ReplacementState) Find(toolUseID string) (Replacement, bool) {
	for _, r := range s {
		if r.ToolUseID == toolUseID {
			return r, true
		}
	}
	return Replacement{}, false
}

// Freeze adds a decision; the first about a call stays.
func (s ReplacementState) Freeze(r Replacement) ReplacementState {
	if _, known := s.Find(r.ToolUseID); known {
		return s
	}
	return append(s, r)
}

// Digest identifies the state; that of the empty state is zero.
func (s ReplacementState) Digest() Digest {
	if len(s) == 0 {
		return Digest{}
	}
	var b []byte
	for _, r := range s {
		b = append(AppendString(b, r.ToolUseID), r.Text[:]...)
	}
	return DigestOf(b)
}

// FullResult is the result of one tool call in full.
type FullResult struct {
	ToolUseID string
	Tool      string
	Text      string
	Blob      Digest // where it is stored
}

// SentResult is what the conversation has of a result.
type SentResult struct {
	Replacement
	// Text is what is sent: the result, or what stands for it.
	Text string
}

// Decide says what is sent of the results of one message. Results with a
// decision come out as they did when it was taken; where the full text given
// now does not make the text of then, the error is ErrCorrupt. Of the others
// those above their own limit are replaced, then the largest of the rest,
// until the message keeps its limit. A result that its replacement would not shorten stays.
// The state does not change: freeze what is sent.
func (s ReplacementState) Decide(l ReplacementLimits, results []FullResult) ([]SentResult, error) {
	out := make([]SentResult, len(results))
	sizes := make([]int, len(results))
	var open []int
	total := 0
	for i, r := range results {
		sizes[i] = utf8.RuneCountInString(r.Text)
		out[i] = SentResult{Replacement{ToolUseID: r.ToolUseID}, r.Text}
		old, frozen := s.Find(r.ToolUseID)
		switch {
		case frozen && old.Replaced():
			text, err := old.render(r.Text)
			if err != nil {
				return nil, err
			}
			out[i] = SentResult{old, text}
			sizes[i] = utf8.RuneCountInString(text)
		case frozen:
		case sizes[i] > l.of(r.Tool):
			sizes[i] = out[i].replace(r, sizes[i], l.Preview)
		default:
			open = append(open, i)
		}
		total += sizes[i]
	}
	slices.SortStableFunc(open, func(a, b int) int { return cmp.Compare(sizes[b], sizes[a]) })
	for _, i := range open {
		if total <= l.Message {
			break
		}
		total -= sizes[i]
		sizes[i] = out[i].replace(results[i], sizes[i], l.Preview)
		total += sizes[i]
	}
	return out, nil
}

// replace puts the preview in the place of a result and answers how many characters are sent now.
func (s *SentResult) replace(r FullResult, size, preview int) int {
	d := Replacement{ToolUseID: r.ToolUseID, Blob: r.Blob, Characters: size, Bytes: len(r.Text), Shown: len(previewOf(r.Text, preview))}
	text := d.text(r.Text)
	n := utf8.RuneCountInString(text)
	if n >= size {
		return size
	}
	d.Text = DigestOf([]byte(text))
	s.Replacement, s.Text = d, text
	return n
}

// render makes the text of a decision again.
func (r Replacement) render(full string) (string, error) {
	if len(full) == r.Bytes && r.Shown <= len(full) {
		if text := r.text(full); DigestOf([]byte(text)) == r.Text {
			return text, nil
		}
	}
	return "", fmt.Errorf("the result of call %s does not make the text that was sent for it: %w", r.ToolUseID, ErrCorrupt)
}

func (r Replacement) text(full string) string {
	var b strings.Builder
	b.WriteString("<" + ReplacementTag + ">\nThis result is too large to be shown: ")
	b.WriteString(strconv.Itoa(r.Characters) + " characters, " + strconv.Itoa(r.Bytes) + " bytes. ")
	b.WriteString("All of it is stored with this session as blob " + r.Blob.String() + ", for people to read; no tool reads it. ")
	b.WriteString("If you need more than its beginning, repeat the call with a narrower range or filter.\n\n")
	b.WriteString(NeutralizeTags(full[:r.Shown]))
	if r.Shown < len(full) {
		b.WriteString("\n...")
	}
	b.WriteString("\n</" + ReplacementTag + ">")
	return b.String()
}

// previewOf is the beginning of a text: at most limit bytes, up to the last end
// of a line in their second half, else up to a rune edge.
func previewOf(text string, limit int) string {
	cut := CutText(text, limit)
	if len(cut) == len(text) {
		return cut
	}
	if i := strings.LastIndexByte(cut, '\n'); i >= limit/2 {
		return cut[:i]
	}
	return cut
}

// ReplaceResults decides about the results that the next user message will
// deliver, once they are all there: a marker for each result that is replaced,
// with the block that takes its place. Nothing that was sent before changes.
func (v *View) ReplaceResults(l ReplacementLimits) ([]Marker, error) {
	small, total := true, 0
	for _, p := range v.Pending {
		if p.Result == nil {
			return nil, nil
		}
		total += len(p.Result)
		small = small && len(p.Result) <= l.of(p.Call.Name)
	}
	if small && total <= l.Message {
		return nil, nil // a block has more bytes than its text has characters
	}
	var results []FullResult
	var blocks []Block
	for _, p := range v.Pending {
		if _, frozen := v.Replacements.Find(p.Call.ID); frozen || p.Forked || p.Async {
			continue
		}
		b, err := parseBlock(p.Result)
		if err != nil {
			return nil, fmt.Errorf("the result of call %s: %w", p.Call.ID, err)
		}
		results = append(results, FullResult{ToolUseID: p.Call.ID, Tool: p.Call.Name, Text: b.Text, Blob: DigestOf(p.Result)})
		blocks = append(blocks, b)
	}
	sent, err := v.Replacements.Decide(l, results)
	if err != nil {
		return nil, err
	}
	var out []Marker
	for i, s := range sent {
		if !s.Replaced() {
			continue
		}
		block := AppendToolResult(nil, s.ToolUseID, s.Text, blocks[i].IsError)
		sum := DigestOf(block)
		out = append(out, Marker{
			Type: MarkerReplacement, ToolUseID: s.ToolUseID, Name: results[i].Tool, Blob: &sum, IsError: blocks[i].IsError,
			Replacement: &s.Replacement, Bytes: block,
		})
	}
	return out, nil
}
