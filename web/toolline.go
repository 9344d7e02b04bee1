package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"forkyard/forkcore"
)

// toolState is how far a tool call is.
type toolState string

const (
	toolWaiting toolState = "waiting" // not started
	toolRunning toolState = "running"
	toolDone    toolState = "done"
	toolError   toolState = "error"
	toolStopped toolState = "stopped" // its turn ended before it did
)

// toolLine is one tool call, in one line and, opened, in full.
type toolLine struct {
	ID, Name string
	// Headline says what the call asks for.
	Headline string
	Input    string // JSON as the model streamed it
	State    toolState
	// Last is the last line of the output, shortened.
	Last   string
	Output string
	// RunID is that of the fork that the call started, empty for all other calls.
	RunID, RunTitle string
	RunState        forkcore.State // empty: not known
}

func newToolLine(b forkcore.Block) toolLine {
	call := forkcore.ToolCall{ID: b.ToolUseID, Name: b.Name, Input: b.Input}
	return toolLine{ID: call.ID, Name: forkcore.CleanText(call.Name), Headline: call.Headline(), Input: string(b.Input), State: toolWaiting}
}

// answer takes in the result.
func (t *toolLine) answer(b forkcore.Block) {
	t.State = toolDone
	if b.IsError {
		t.State = toolError
	}
	t.Output = b.Text
	if b.Text == "" {
		t.Output = string(b.Raw) // an image, or several blocks
	}
	t.Last = outputLine(t.Output)
}

// launched takes in the fork that answers the call.
func (t *toolLine) launched(runID string, runs map[string]forkcore.Run) {
	t.RunID = runID
	if r, ok := runs[runID]; ok {
		t.RunTitle, t.RunState = runTitle(r), r.State
	}
}

// key tells apart what changes about a line.
func (t *toolLine) key() string {
	return fmt.Sprintf("%s,%d,%s,%s,%s;", t.State, len(t.Output), t.RunID, t.RunState, t.RunTitle)
}

// mark is the state that the icon of the line shows: of the fork, where the call started one.
func (t *toolLine) mark() toolState {
	switch {
	case t.RunID == "":
		return t.State
	case t.RunState == forkcore.Done:
		return toolDone
	case t.RunState == forkcore.Cancelled:
		return toolStopped
	case t.RunState.Ended():
		return toolError
	case t.RunState == forkcore.Queued, t.RunState == forkcore.Waiting, t.RunState == forkcore.Parked:
		return toolWaiting
	}
	return toolRunning
}

// stateWords says the state to those who do not see the icon.
func (t *toolLine) stateWords() string {
	switch t.mark() {
	case toolWaiting:
		return "waiting"
	case toolRunning:
		return "running"
	case toolError:
		return "failed"
	case toolStopped:
		return "stopped"
	}
	return "done"
}

// outputLine is the last line of a text that is not empty, of at most 120 characters.
func outputLine(text string) string {
	text = strings.TrimRight(text, " \t\r\n")
	return shorten(forkcore.CutText(text[strings.LastIndexByte(text, '\n')+1:], 2_000), 120)
}

const (
	outputHead = 8 << 10
	outputTail = 4 << 10
)

// excerpt is what is shown of a long text: its beginning and its end.
type excerpt struct {
	Head, Tail string
	// Note says what is missing between the two; empty: nothing.
	Note string
}

func newExcerpt(text string) excerpt {
	if len(text) <= outputHead+outputTail {
		return excerpt{Head: text}
	}
	head := forkcore.CutText(text, outputHead)
	tail := text[len(text)-outputTail:]
	// Cut where lines end, when they do, and never inside a character.
	if i := strings.LastIndexByte(head, '\n'); i > outputHead/2 {
		head = head[:i+1]
	}
	if i := strings.IndexByte(tail, '\n'); i >= 0 && i < outputTail/2 {
		tail = tail[i+1:]
	}
	tail = strings.ToValidUTF8(tail, "")
	return excerpt{
		Head: head, Tail: tail,
		Note: fmt.Sprintf("%s of %s bytes are not shown", grouped(int64(len(text)-len(head)-len(tail))), grouped(int64(len(text)))),
	}
}

// indented formats JSON for people. What is not JSON, or would become very long, stays as it is.
func indented(raw string) string {
	if len(raw) > outputHead+outputTail {
		return raw
	}
	var b bytes.Buffer
	if json.Indent(&b, []byte(raw), "", "  ") != nil || b.Len() > 8*(outputHead+outputTail) {
		return raw
	}
	return b.String()
}
