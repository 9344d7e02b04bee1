package web

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"forkyard/forkcore"
)

// entryView is one thing that a reader of a log sees: a message with all that became of it, or a remark.
type entryView struct {
	ID string
	// Key differs whenever what is drawn differs.
	Key string
	// At is when that last changed, Sent when the entry was written.
	At, Sent time.Time
	// Role is user, assistant or marker.
	Role  string
	Parts []partView
}

// partKind names how a part of an entry is drawn.
type partKind string

const (
	partPerson    partKind = "person"    // Text: as typed
	partText      partKind = "text"      // Text: markdown
	partThinking  partKind = "thinking"  // Text; empty: the provider keeps it to itself
	partTool      partKind = "tool"      // Tool
	partNotice    partKind = "notice"    // Notice
	partRules     partKind = "rules"     // Text; Count: placeholders before them
	partDirective partKind = "directive" // Text: as typed
	partOther     partKind = "other"     // Text: JSON; Title: its type
	partRemark    partKind = "remark"    // Title, and Reason, Path, State or nothing
)

// partView is one block of a message, or a remark.
type partView struct {
	Kind   partKind
	Title  string
	Text   string
	Count  int
	Tool   *toolLine
	Notice *noticeView
	Reason *forkcore.Reason
	State  forkcore.State
	Path   string // of what a remark is about
}

// transcript is an agent's log that grows. Each line is read once, so that asking for the entries again is cheap.
type transcript struct {
	agentID string
	lines   []logLine
}

// logLine is a line and what never changes about how it is drawn.
type logLine struct {
	forkcore.TranscriptLine
	role    string
	parts   []partView
	results []forkcore.Block
	// hidden lines only change others.
	hidden bool
}

func newTranscript(agentID string) *transcript { return &transcript{agentID: agentID} }

// last is the seq of the last line.
func (t *transcript) last() int64 {
	if len(t.lines) == 0 {
		return 0
	}
	return t.lines[len(t.lines)-1].Seq
}

// add appends lines. Those that are there already are left out.
func (t *transcript) add(lines ...forkcore.TranscriptLine) {
	for _, l := range lines {
		if l.Seq > t.last() {
			line := newLogLine(l)
			if l.Seq == 1 && l.RunID == t.agentID { // the task of an agent with a conversation of its own: nobody typed it
				for i := range line.parts {
					if line.parts[i].Kind == partPerson {
						line.parts[i].Kind = partDirective
					}
				}
			}
			t.lines = append(t.lines, line)
		}
	}
}

func newLogLine(l forkcore.TranscriptLine) logLine {
	line := logLine{TranscriptLine: l, role: "marker"}
	if l.Kind == forkcore.EntryMarker {
		line.readMarker()
		return line
	}
	m, err := forkcore.ParseMessage(l.Message)
	if err != nil {
		line.parts = []partView{{Kind: partOther, Title: "unreadable message", Text: string(l.Message)}}
		return line
	}
	line.role = string(m.Role)
	if m.Role == forkcore.RoleAssistant {
		for _, b := range m.Blocks {
			line.parts = append(line.parts, answerPart(b))
		}
		return line
	}
	line.readUser(m)
	return line
}

// answerPart reads one block of what a model wrote.
func answerPart(b forkcore.Block) partView {
	switch b.Type {
	case "text":
		return partView{Kind: partText, Text: b.Text}
	case "tool_use":
		tool := newToolLine(b)
		return partView{Kind: partTool, Tool: &tool}
	case "thinking", "redacted_thinking":
		var v struct {
			Thinking string `json:"thinking"`
		}
		_ = json.Unmarshal(b.Raw, &v) // of a redacted one nothing is left to read
		return partView{Kind: partThinking, Text: strings.TrimSpace(v.Thinking)}
	}
	return otherPart(b)
}

func otherPart(b forkcore.Block) partView {
	return partView{Kind: partOther, Title: b.Type, Text: string(b.Raw)}
}

// rulesOpening begins the block that all forks share. In texts of others it is neutralised.
const rulesOpening = "<" + forkcore.BoilerplateTag + ">"

// previewOpening begins what the model got of a result that was too big.
const previewOpening = "<" + forkcore.ReplacementTag + ">"

func (l *logLine) readUser(m forkcore.Message) {
	placeholders, launch, directive := 0, true, false
	for i, b := range m.Blocks {
		switch {
		case b.Type == "tool_result":
			l.results = append(l.results, b)
			if b.Text == forkcore.Placeholder {
				placeholders++
			}
		case b.Type != "text":
			l.parts = append(l.parts, otherPart(b))
		case strings.HasPrefix(b.Text, rulesOpening):
			rules := strings.TrimSuffix(strings.TrimPrefix(b.Text, rulesOpening), "</"+forkcore.BoilerplateTag+">")
			l.parts = append(l.parts, partView{Kind: partRules, Text: strings.TrimSpace(rules), Count: placeholders})
			l.results = nil // of the parent's calls
			directive = true
		case directive:
			l.parts = append(l.parts, partView{Kind: partDirective, Text: b.Text})
		case launch && i > 0 && placeholders == i:
			// The list of the forks that the calls above started; each call shows its own.
			launch = false
		default:
			if notice, ok := parseNotice(b.Text); ok {
				l.parts = append(l.parts, partView{Kind: partNotice, Notice: &notice})
			} else {
				l.parts = append(l.parts, partView{Kind: partPerson, Text: b.Text})
			}
		}
	}
	l.hidden = len(l.parts) == 0
}

func (l *logLine) readMarker() {
	m := l.Marker
	if m == nil {
		l.hidden = true
		return
	}
	remark := partView{Kind: partRemark}
	switch m.Type {
	case forkcore.MarkerTurnEnd:
		if m.State == forkcore.Done {
			l.hidden = true
			return
		}
		remark.Title, remark.State, remark.Reason = "This turn ended", m.State, m.Reason
	case forkcore.MarkerBackground:
		remark.Title = "Went on in the background"
	case forkcore.MarkerStop:
		remark.Title = stopWords(m.Name)
	case forkcore.MarkerForkOf:
		remark.Title = "Inherits the conversation up to here"
	case forkcore.MarkerLaunched:
		remark.Title = "Started " + counted(int64(len(m.RunIDs)), "fork")
	case forkcore.MarkerSpawned:
		remark.Title = "Started " + counted(int64(len(m.RunIDs)), "agent")
	case forkcore.MarkerAsync:
		remark.Title = "Goes on while " + counted(int64(len(m.ToolUseIDs)), "agent") + " of it works in the background"
	case forkcore.MarkerCooling:
		remark.Title = fmt.Sprintf("The cache expires while %s works, and the next request writes it again: %s", m.Name, m.Detail)
	case forkcore.MarkerResumed:
		remark.Title = "Somebody let it go on from here"
	case forkcore.MarkerToolResult:
		l.hidden = true
		block := forkcore.Block{Type: "tool_result", ToolUseID: m.ToolUseID, IsError: m.IsError}
		if len(m.Bytes) > 0 { // events do not carry them
			if message, err := forkcore.ParseMessage(forkcore.EncodeMessage(forkcore.RoleUser, m.Bytes)); err == nil && len(message.Blocks) == 1 {
				block = message.Blocks[0]
			}
		}
		l.results = []forkcore.Block{block}
		return
	default:
		l.hidden = true
		return
	}
	l.parts = []partView{remark}
}

// stopWords says why a model stopped where it did.
func stopWords(reason string) string {
	switch reason {
	case "max_tokens":
		return "The answer was cut off: it reached the largest number of tokens of a request"
	case "model_context_window_exceeded":
		return "The answer was cut off: the context window is full"
	case "refusal":
		return "The model declined to answer"
	case "pause_turn":
		return "The provider paused the turn"
	}
	return "The model stopped: " + reason
}

// entries folds the lines. Runs are those of the session, by id.
func (t *transcript) entries(runs map[string]forkcore.Run) []entryView {
	f := fold{runs: runs, open: map[string]openCall{}}
	for i := range t.lines {
		f.take(t.agentID, &t.lines[i])
	}
	f.stop(func(runID string) bool { return runs[runID].State.Ended() })
	for i := range f.entries {
		var key strings.Builder
		for _, p := range f.entries[i].Parts {
			if p.Tool != nil {
				key.WriteString(p.Tool.key())
			}
		}
		f.entries[i].Key = key.String()
	}
	return f.entries
}

// fold is the work of entries.
type fold struct {
	runs    map[string]forkcore.Run
	entries []entryView
	open    map[string]openCall // by tool_use id; calls of the last answer
}

// openCall is a call that lines further down say more about.
type openCall struct {
	entry    int
	tool     *toolLine
	runID    string // whose answer made it
	answered bool
}

func (f *fold) take(agentID string, l *logLine) {
	for _, b := range l.results {
		c, ok := f.open[b.ToolUseID]
		if ok && c.answered && c.tool.Output != "" && strings.HasPrefix(b.Text, previewOpening) {
			continue // the whole result is there already
		}
		if ok && (len(b.Raw) > 0 || !c.answered) {
			c.tool.answer(b)
			c.answered = true
			f.touch(b.ToolUseID, c, l.At)
		}
	}
	if m := l.Marker; m != nil {
		switch m.Type {
		case forkcore.MarkerToolStarted:
			if c, ok := f.open[m.ToolUseID]; ok && !c.answered {
				c.tool.State = toolRunning
				f.touch(m.ToolUseID, c, l.At)
			}
		case forkcore.MarkerLaunched, forkcore.MarkerSpawned:
			f.launched(m, l.At)
		case forkcore.MarkerTurnEnd:
			f.stop(func(runID string) bool { return runID == l.RunID })
		}
	}
	if l.hidden {
		return
	}
	e := entryView{ID: fmt.Sprintf("e-%s-%d", agentID, l.Seq), At: l.At, Sent: l.At, Role: l.role, Parts: l.parts}
	if l.role == string(forkcore.RoleAssistant) {
		e.Parts = make([]partView, len(l.parts))
		for i, p := range l.parts {
			if p.Tool != nil {
				tool := *p.Tool
				p.Tool = &tool
				f.open[tool.ID] = openCall{entry: len(f.entries), tool: &tool, runID: l.RunID}
			}
			e.Parts[i] = p
		}
	}
	f.entries = append(f.entries, e)
}

// touch notes that an entry changed.
func (f *fold) touch(id string, c openCall, at time.Time) {
	f.open[id] = c
	if e := &f.entries[c.entry]; at.After(e.At) {
		e.At = at
	}
}

func (f *fold) launched(m *forkcore.Marker, at time.Time) {
	for i, id := range m.ToolUseIDs {
		c, ok := f.open[id]
		if !ok || i >= len(m.RunIDs) {
			continue
		}
		c.tool.launched(m.RunIDs[i], f.runs)
		f.touch(id, c, at)
		f.touch(id, c, f.runs[m.RunIDs[i]].UpdatedAt)
	}
}

// stop ends the calls of runs that have ended.
func (f *fold) stop(ended func(runID string) bool) {
	for id, c := range f.open {
		if !c.answered && c.tool.RunID == "" && c.tool.State != toolStopped && ended(c.runID) {
			c.tool.State = toolStopped
			f.touch(id, c, f.runs[c.runID].UpdatedAt)
		}
	}
}

// draftLine is how many characters of a thought or an input show while it is written.
const draftLine = 80

// draftText is a block of an unfinished message; what nobody here has seen is an ellipsis.
func draftText(b draftBlock) string {
	if b.Lost > 0 {
		return "…" + b.Text
	}
	return b.Text
}

// placeholderNote says what stands before the rules.
func placeholderNote(n int) string {
	return fmt.Sprintf("Before them: %s for the calls that started the forks, each saying “%s”.", counted(int64(n), "placeholder"), forkcore.Placeholder)
}

// label names an entry to those who do not see where it stands.
func (v entryView) label() string {
	switch v.Role {
	case string(forkcore.RoleAssistant):
		return "Agent"
	case string(forkcore.RoleUser):
		return "To the agent"
	}
	return "Remark"
}
