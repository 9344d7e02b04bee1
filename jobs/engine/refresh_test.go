package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// warmable is a scripted model that takes pre-warm requests.
type warmable struct {
	*scripted
	warmed []call
	fails  bool
}

func (w *warmable) Prewarm(_ context.Context, r forkcore.Request) (*forkcore.ModelStart, error) {
	body, err := io.ReadAll(r.Body())
	if err != nil {
		return nil, err
	}
	w.warmed = append(w.warmed, call{at: time.Now(), body: body})
	if w.fails {
		return nil, &forkcore.ModelError{Code: forkcore.CodeOverloaded, Status: 529, Message: "Overloaded", Retryable: true}
	}
	return &forkcore.ModelStart{Usage: forkcore.Usage{CacheRead: usual.Cached()}, UsageKnown: true, MessageID: "msg_warm"}, nil
}

// TestLongToolKeepsTheCacheWarm: while a tool runs for longer than the entry lives, it is read again by requests that answer
// nothing; where that may not be or does not pay, the log says so once.
func TestLongToolKeepsTheCacheWarm(t *testing.T) {
	tests := []struct {
		name     string
		spec     forkcore.SessionSpec
		plain    bool // the model takes no pre-warm request
		fails    bool
		tool     time.Duration
		requests string // statuses
		refresh  []time.Duration
		cooling  string // what the log says
	}{
		{"a short tool", forkcore.SessionSpec{}, false, false, 4 * time.Minute, "ok ok", nil, ""},
		{"eleven minutes", forkcore.SessionSpec{}, false, false, 11 * time.Minute, "ok ok ok ok", []time.Duration{270 * time.Second, 540 * time.Second}, ""},
		{"thinking that forbids it", forkcore.SessionSpec{Model: "claude-haiku-4-5", Thinking: json.RawMessage(`{"type":"enabled","budget_tokens":2000}`)}, false, false, 11 * time.Minute, "ok ok", nil, "with these settings"},
		{"an endpoint without it", forkcore.SessionSpec{}, true, false, 11 * time.Minute, "ok ok", nil, "takes no request"},
		{"a provider in trouble", forkcore.SessionSpec{}, false, true, 11 * time.Minute, "ok error ok", []time.Duration{270 * time.Second}, "failed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				warm := &warmable{fails: tt.fails}
				y := newYard(t, func(c call) reply {
					if c.answers() == 0 {
						return useTools(use("t1", "Bash", `{}`))
					}
					return say("done")
				}, func(o *engine.Options) {
					if !tt.plain {
						warm.scripted = o.Model.(*scripted)
						o.Model = warm
					}
				})
				y.session = y.newSession(tt.spec)
				y.tools.do = func(context.Context, forkcore.ToolCall) forkcore.ToolResult {
					time.Sleep(tt.tool)
					return forkcore.ToolResult{Text: "slept"}
				}
				began := time.Now()
				r := y.ask("go")
				want(t, "state", r.State, forkcore.Done)
				want(t, "statuses", y.statuses(r.ID), tt.requests)
				want(t, "executions", y.tools.times("t1"), 1)
				var at []time.Duration
				for _, c := range warm.warmed {
					at = append(at, c.at.Sub(began).Truncate(time.Second))
					first := y.model.received()[0].body
					prefix, _, _ := bytes.Cut(first, []byte(`],"max_tokens"`))
					if !bytes.Equal(c.body, append(bytes.Clone(prefix), `],"max_tokens":0}`...)) {
						t.Errorf("a pre-warm request is %s", c.body)
					}
				}
				want(t, "refreshed at", fmt.Sprint(at), fmt.Sprint(tt.refresh))
				log := y.log(y.session.ID)
				want(t, "remarks", strings.Count(log, "cache_cooling"), min(len(tt.cooling), 1))
				for _, e := range y.entries(y.session.ID) {
					if e.Marker != nil && e.Marker.Type == forkcore.MarkerCooling && !strings.Contains(e.Marker.Detail, tt.cooling) {
						t.Errorf("the log says %q", e.Marker.Detail)
					}
				}
				for _, row := range y.requests(r.ID) {
					if !row.Refresh {
						continue
					}
					if _, err := y.engine.RequestBody(y.ctx, r.ID, row.N); err != nil {
						t.Errorf("rebuild the refresh: %v", err)
					}
					if row.Status == forkcore.RequestOK && (row.Cost == nil || *row.Cost == 0 || row.ReadFrom == nil) {
						t.Errorf("row of a refresh: %+v", row)
					}
				}
				if len(tt.refresh) > 0 && !tt.fails {
					rows := y.requests(r.ID)
					if last := rows[len(rows)-1]; *last.ExpectedRead == 0 {
						t.Error("the request after the tool expects nothing of the cache")
					}
				}
			})
		})
	}
}
