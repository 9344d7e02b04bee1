package web

import (
	"fmt"
	"strings"
	"time"

	"forkyard/forkcore"
	"forkyard/web/api"
)

// fanOutView is the header above the cards of one dispatch.
type fanOutView struct {
	ID, Key   string
	At        time.Time
	Title     string
	By        string
	Created   time.Time
	States    []stateCount
	Gate      gateView
	Quotes    []quoteView
	QuoteNote string
	FirstBill string // input of the first requests, what the quote speaks of
	Answered  string // how many forks that bill is of, while it is not all of them
	Bill      string
	Verdict   string // the bill beside the quote, once it is complete
	Ended     bool
	Result    fanOutResult // once all have ended
	Actions   fanOutActions
	// Agents have conversations of their own: there is nothing that they share, no quote and no gate.
	Agents bool
}

// stateCount is how many forks are in a state.
type stateCount struct {
	State forkcore.State
	Text  string
}

// gateView says in words where the gate of a dispatch stands and how it came to that.
type gateView struct {
	State   forkcore.GateState
	Text    string
	History []gateLine
}

type gateLine struct {
	At         time.Time
	Span, Text string
}

// quoteView is a price that was told before the dispatch.
type quoteView struct {
	Name, Cost string
	Applies    bool // it is the one for the temperature and the gate of this dispatch
}

// newFanOut shows a dispatch. Runs that are not at hand may be left out.
func newFanOut(d forkcore.Dispatch, runs []forkcore.Run, prices api.Prices) fanOutView {
	v := fanOutView{
		ID: "fanout-" + d.ID, At: d.UpdatedAt, Title: counted(int64(len(d.RunIDs)), "fork"), By: "a person", Created: d.CreatedAt,
		States: countStates(runs), Gate: newGate(d, runs), Quotes: newQuotes(d.Quote), QuoteNote: quoteNote(d.Quote),
		FirstBill: dollars(api.FirstInputCost(d, prices)), Bill: dollars(d.Cost.Known()), Ended: d.Remaining == 0,
	}
	if d.ParentRunID != "" {
		v.By = "the main agent"
	}
	if len(runs) > 0 && runs[0].Kind == forkcore.KindAgent {
		v.Agents, v.Title, v.Quotes = true, counted(int64(len(d.RunIDs)), "agent"), nil
	}
	answered := 0
	for _, r := range runs {
		if r.Depth > 1 {
			v.By = "a fork"
		}
		v.At = later(v.At, r.UpdatedAt)
		if r.Usage.TotalInput() > 0 {
			answered++
		}
	}
	if d.FirstRequestUsage.TotalInput() == 0 {
		v.FirstBill = "–"
	} else if answered < len(d.RunIDs) {
		v.Answered = fmt.Sprintf("of %d of %d forks", answered, len(d.RunIDs))
	}
	if d.Usage.TotalInput() == 0 && d.Cost.Unpriced == 0 {
		v.Bill = "–"
	}
	if word := api.BillVerdict(d, runs, prices); word != nil {
		v.Verdict = map[string]string{"cheaper": "cheaper than quoted", "costlier": "costlier than quoted"}[*word]
		if v.Verdict == "" {
			v.Verdict = *word
		}
	}
	if v.Ended && !v.Agents {
		v.Result = newFanOutResult(d, runs, prices)
	}
	v.Actions = newFanOutActions(d, runs)
	v.Key = fmt.Sprintf("%+v", v)
	if b := v.Actions.Budget; b != nil {
		v.Key += fmt.Sprint(*b)
	}
	return v
}

// countStates counts runs by state, in the order of a run's life.
func countStates(runs []forkcore.Run) []stateCount {
	by := map[forkcore.State]int{}
	for _, r := range runs {
		by[r.State]++
	}
	var counts []stateCount
	for _, state := range forkcore.States {
		if by[state] > 0 {
			counts = append(counts, stateCount{state, fmt.Sprintf("%d %s", by[state], strings.ReplaceAll(string(state), "_", " "))})
		}
	}
	return counts
}

// coldCause is why a gate was closed a second time.
var coldCause = map[string]string{
	"expired":   "what was cached had expired",
	"other_key": "what was cached is held under the key before",
}

func newGate(d forkcore.Dispatch, runs []forkcore.Run) gateView {
	v := gateView{State: d.Gate, History: gateHistory(d, runs)}
	last := func(kind string) (e forkcore.GateEvent) {
		for _, g := range d.GateHistory {
			if g.Type == kind && g.Generation == d.Generation {
				e = g
			}
		}
		return e
	}
	switch closed, opened := last("closed"), last("opened"); {
	case d.Gate == forkcore.GateClosed:
		v.Text = fmt.Sprintf("Gate closed: the others wait until the answer to %s begins", forkName(d.LeaderRunID, d, runs))
		if why := coldCause[closed.Cause]; why != "" {
			v.Text += ", because " + why
		}
	case d.Gate == forkcore.GateOpen:
		v.Text = "Gate open"
		if !opened.At.IsZero() && !closed.At.IsZero() {
			v.Text += " after " + shortSpan(opened.At.Sub(closed.At))
		}
		switch opened.Cause {
		case "limit":
			v.Text += ": the leader took too long, so the others went ahead"
		case "leader_ended":
			v.Text += ": no fork was left to lead"
		}
	case d.GateMode == forkcore.GateOff:
		v.Text = "No gate: it was turned off, so all forks started at once"
	case len(d.RunIDs) == 1:
		v.Text = "No gate: a single fork has nobody to wait for"
	default:
		v.Text = "No gate: waiting would have saved too little, so all forks started at once"
	}
	return v
}

func gateHistory(d forkcore.Dispatch, runs []forkcore.Run) []gateLine {
	lines := make([]gateLine, len(d.GateHistory))
	var closed time.Time
	for i, g := range d.GateHistory {
		name := forkName(g.RunID, d, runs)
		line := gateLine{At: g.At}
		switch g.Type {
		case "closed":
			closed = g.At
			line.Text = "Closed, " + name + " leads"
			if why := coldCause[g.Cause]; why != "" {
				line.Text = "Closed again, " + name + " leads: " + why
			}
		case "promoted":
			line.Text = name + " leads now: the leader before it ended without opening"
		case "opened":
			line.Text = map[string]string{
				"message_start": "Opened: the answer to " + name + " began",
				"limit":         "Opened by the time limit, before the answer to " + name + " began",
				"leader_ended":  "Opened: " + name + " ended, and no other was left to lead",
			}[g.Cause]
		}
		if line.Text == "" {
			line.Text = asSentence(g.Type + " (" + strings.ReplaceAll(g.Cause, "_", " ") + ")")
		}
		if i > 0 && !closed.IsZero() && g.Type != "closed" {
			line.Span = "after " + shortSpan(g.At.Sub(closed))
		}
		lines[i] = line
	}
	return lines
}

// forkName is how a text calls a fork.
func forkName(id string, d forkcore.Dispatch, runs []forkcore.Run) string {
	for _, r := range runs {
		if r.ID == id {
			return "“" + shorten(runTitle(r), 60) + "”"
		}
	}
	for i, known := range d.RunIDs {
		if known == id {
			return fmt.Sprintf("“Fork %d”", i+1)
		}
	}
	return "the leader"
}

// shortSpan is a length of time that is mostly under a second.
func shortSpan(d time.Duration) string {
	if d = max(d, 0); d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return spanText(d)
}

// newQuotes lists the prices that were told, the one that applies among them.
func newQuotes(q forkcore.Quote) []quoteView {
	quotes := []quoteView{
		{"Quoted cold", dollars(q.ColdNanoUSD), q.Gate && !q.Warm},
	}
	if q.Warm {
		quotes = append(quotes, quoteView{"Quoted warm", dollars(q.WarmNanoUSD), q.Gate})
	}
	if !q.Gate {
		quotes = append(quotes, quoteView{"Quoted at once", dollars(q.UngatedNanoUSD), true})
	}
	return append(quotes, quoteView{"Quoted, no cache", dollars(q.UnsharedNanoUSD), false})
}

func quoteNote(q forkcore.Quote) string {
	note := fmt.Sprintf("The quote is for the input of the first requests: %s shared by %s", tokens(q.SharedTokens), counted(int64(q.Children), "fork"))
	if q.Warm {
		note += fmt.Sprintf(", of which %s were cached when it was made", grouped(q.PrefixTokens))
	} else {
		note += ", nothing of it cached when it was made"
	}
	if !q.Exact {
		note += "; token counts are estimated from bytes"
	}
	return note + "."
}
