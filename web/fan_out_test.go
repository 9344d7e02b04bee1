package web

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
)

const dispatchID = "dsp_03aaaaaaaaaaaaaaaa"

func TestGate(t *testing.T) {
	const second = "run_03dddddddddddddddd"
	runs := []forkcore.Run{{ID: forkID, Title: "Tests"}, {ID: second}}
	event := func(ms int, generation int64, kind, run, cause string) forkcore.GateEvent {
		return forkcore.GateEvent{At: noon.Add(time.Duration(ms) * time.Millisecond), Generation: generation, Type: kind, RunID: run, Cause: cause}
	}
	dispatch := event(0, 1, "closed", forkID, "dispatch")
	tests := []struct {
		name    string
		d       forkcore.Dispatch
		text    string
		history []string
	}{
		{
			"closed",
			forkcore.Dispatch{Gate: forkcore.GateClosed, Generation: 1, LeaderRunID: forkID, GateHistory: []forkcore.GateEvent{dispatch}},
			"Gate closed: the others wait until the answer to “Tests” begins",
			[]string{"Closed, “Tests” leads"},
		},
		{
			"open",
			forkcore.Dispatch{Gate: forkcore.GateOpen, Generation: 1, LeaderRunID: forkID, GateHistory: []forkcore.GateEvent{dispatch, event(212, 1, "opened", forkID, "message_start")}},
			"Gate open after 212 ms",
			[]string{"Closed, “Tests” leads", "after 212 ms Opened: the answer to “Tests” began"},
		},
		{
			"limit",
			forkcore.Dispatch{Gate: forkcore.GateOpen, Generation: 1, GateHistory: []forkcore.GateEvent{dispatch, event(20_000, 1, "opened", forkID, "limit")}},
			"Gate open after 0:20: the leader took too long, so the others went ahead",
			[]string{"Closed, “Tests” leads", "after 0:20 Opened by the time limit, before the answer to “Tests” began"},
		},
		{"promoted, nobody left", forkcore.Dispatch{Gate: forkcore.GateOpen, Generation: 1, GateHistory: []forkcore.GateEvent{
			dispatch, event(500, 1, "promoted", second, "leader_ended"), event(1500, 1, "opened", second, "leader_ended"),
		}}, "Gate open after 1.5 s: no fork was left to lead", []string{
			"Closed, “Tests” leads", "after 500 ms “Fork 2” leads now: the leader before it ended without opening", "after 1.5 s Opened: “Fork 2” ended, and no other was left to lead",
		}},
		{"closed again", forkcore.Dispatch{Gate: forkcore.GateClosed, Generation: 2, LeaderRunID: second, GateHistory: []forkcore.GateEvent{
			dispatch, event(200, 1, "opened", forkID, "message_start"), event(400_000, 2, "closed", second, "expired"),
		}}, "Gate closed: the others wait until the answer to “Fork 2” begins, because what was cached had expired", []string{
			"Closed, “Tests” leads", "after 200 ms Opened: the answer to “Tests” began", "Closed again, “Fork 2” leads: what was cached had expired",
		}},
		{"closed for another key", forkcore.Dispatch{Gate: forkcore.GateClosed, Generation: 2, LeaderRunID: second, GateHistory: []forkcore.GateEvent{
			dispatch, event(400_000, 2, "closed", second, "other_key"),
		}}, "Gate closed: the others wait until the answer to “Fork 2” begins, because what was cached is held under the key before", []string{
			"Closed, “Tests” leads", "Closed again, “Fork 2” leads: what was cached is held under the key before",
		}},
		{"opened again", forkcore.Dispatch{Gate: forkcore.GateOpen, Generation: 2, GateHistory: []forkcore.GateEvent{
			dispatch, event(200, 1, "opened", forkID, "message_start"), event(400_000, 2, "closed", "run_gone", "expired"), event(400_300, 2, "opened", "run_gone", "new_cause"),
		}}, "Gate open after 300 ms", []string{
			"Closed, “Tests” leads", "after 200 ms Opened: the answer to “Tests” began", "Closed again, the leader leads: what was cached had expired", "after 300 ms Opened (new cause).",
		}},
		{"off", forkcore.Dispatch{Gate: forkcore.GateNone, GateMode: forkcore.GateOff}, "No gate: it was turned off, so all forks started at once", nil},
		{"one", forkcore.Dispatch{Gate: forkcore.GateNone, GateMode: forkcore.GateAlways, RunIDs: []string{forkID}}, "No gate: a single fork has nobody to wait for", nil},
		{
			"too little",
			forkcore.Dispatch{Gate: forkcore.GateNone, GateMode: forkcore.GateAuto, RunIDs: []string{forkID, second}},
			"No gate: waiting would have saved too little, so all forks started at once", nil,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.d.RunIDs == nil {
				test.d.RunIDs = []string{forkID, second}
			}
			v := newGate(test.d, []forkcore.Run{runs[0], {ID: second, Index: 1}})
			var history []string
			for _, line := range v.History {
				history = append(history, strings.TrimSpace(line.Span+" "+line.Text))
			}
			if v.Text != test.text {
				t.Errorf("%q, want %q", v.Text, test.text)
			}
			if diff := cmp.Diff(test.history, history); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFanOutQuotes(t *testing.T) {
	prices := forkcore.Quote{ColdNanoUSD: new(int64(6_000_000)), WarmNanoUSD: new(int64(2_000_000)), UngatedNanoUSD: new(int64(7_000_000)), UnsharedNanoUSD: new(int64(9_000_000))}
	cold := quoteView{Name: "Quoted cold", Cost: "$0.0060"}
	warm := quoteView{Name: "Quoted warm", Cost: "$0.0020"}
	none := quoteView{Name: "Quoted, no cache", Cost: "$0.0090"}
	applies := func(q quoteView) quoteView { q.Applies = true; return q }
	tests := []struct {
		name       string
		warm, gate bool
		want       []quoteView
	}{
		{"cold", false, true, []quoteView{applies(cold), none}},
		{"warm", true, true, []quoteView{cold, applies(warm), none}},
		{"ungated", true, false, []quoteView{cold, warm, {"Quoted at once", "$0.0070", true}, none}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			q := prices
			q.Warm, q.Gate = test.warm, test.gate
			if diff := cmp.Diff(test.want, newQuotes(q)); diff != "" {
				t.Error(diff)
			}
		})
	}
	for _, q := range newQuotes(forkcore.Quote{Gate: true}) {
		if q.Cost != "no price" {
			t.Errorf("without a price, %s is %s", q.Name, q.Cost)
		}
	}
}

func TestFanOutHeader(t *testing.T) {
	d, runs := sampleFanOut(t)
	prices := catalogue(t)
	v := newFanOut(d, runs, prices)
	html := renderText(t, fanOutHeader(v))
	text := withoutTags(html)
	for _, want := range []string{`id="fanout-` + dispatchID + `"`, `id="fanout-` + dispatchID + `-title"`, `data-verdict="saved"`} {
		if !strings.Contains(html, want) {
			t.Errorf("no %s in %s", want, html)
		}
	}
	for _, want := range []string{"3 forks", "3 done", "by a person", "as quoted", v.Result.Shared, v.Result.Cost, v.Result.Without} {
		if !strings.Contains(text, strings.Join(strings.Fields(want), " ")) {
			t.Errorf("no %q in %s", want, text)
		}
	}

	d.ParentRunID, d.Remaining = mainID, 2
	runs[1].State, runs[1].Usage = forkcore.Parked, forkcore.Usage{}
	runs[2].State, runs[2].UpdatedAt = forkcore.Running, noon.Add(time.Hour)
	going := newFanOut(d, runs, prices)
	text = withoutTags(renderText(t, fanOutHeader(going)))
	for _, want := range []string{"1 running", "1 parked", "1 done", "by the main agent", "of 2 of 3 forks"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if going.Ended || going.Verdict != "" || strings.Contains(text, "Without the cache") {
		t.Errorf("a fan-out that goes on is judged: %s", text)
	}
	if going.Key == v.Key || !going.At.Equal(noon.Add(time.Hour)) {
		t.Errorf("key %q, changed at %v", going.Key, going.At)
	}
}

func TestFanOutHeaderBeforeAnyAnswer(t *testing.T) {
	d := forkcore.Dispatch{ID: dispatchID, RunIDs: []string{forkID}, Remaining: 1}
	v := newFanOut(d, []forkcore.Run{{ID: forkID, State: forkcore.Queued}}, nil)
	if v.FirstBill != "–" || v.Bill != "–" || v.Title != "1 fork" {
		t.Errorf("%s: first requests %s, all %s", v.Title, v.FirstBill, v.Bill)
	}
}

func TestFanOutHostileTitle(t *testing.T) {
	d, runs := sampleFanOut(t)
	runs[0].Title = `<script>alert(1)</script>" onclick="x`
	d.Gate, d.Generation, d.LeaderRunID = forkcore.GateClosed, 1, runs[0].ID
	d.GateHistory = []forkcore.GateEvent{{At: noon, Generation: 1, Type: "<b>", RunID: runs[0].ID, Cause: "<i>"}}
	html := renderText(t, fanOutHeader(newFanOut(d, runs, catalogue(t))))
	if strings.Contains(html, "<script") || strings.Contains(html, "<b>") || strings.Contains(html, "<i>") {
		t.Errorf("text became elements: %s", html)
	}
}

func TestCountStates(t *testing.T) {
	var runs []forkcore.Run
	for _, state := range slices.Backward(forkcore.States) {
		runs = append(runs, forkcore.Run{State: state})
	}
	runs = append(runs, forkcore.Run{State: forkcore.Running})
	var got []string
	for _, c := range countStates(runs) {
		got = append(got, c.Text)
	}
	want := "1 queued, 2 running, 1 parked, 1 waiting, 1 done, 1 failed, 1 cancelled, 1 over budget"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("%s, want %s", text, want)
	}
}
