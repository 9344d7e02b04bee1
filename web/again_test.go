package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"forkyard/forkcore"
)

func (f *fake) Resume(_ context.Context, id string) (string, error) {
	f.called("resume " + id)
	return id, f.refuse
}

func (f *fake) ResumeDispatch(_ context.Context, id string) ([]string, error) {
	f.called("resume all of " + id)
	return nil, f.refuse
}

func (f *fake) Retry(_ context.Context, id string, _ forkcore.RetrySpec, key string) (forkcore.Dispatch, []forkcore.Run, error) {
	f.called("retry " + id + " as " + key)
	return forkcore.Dispatch{}, nil, f.refuse
}

func (f *fake) SetBudget(_ context.Context, id string, usd *float64) error {
	amount := "none"
	if usd != nil {
		amount = fmt.Sprint(*usd)
	}
	f.called("budget of " + id + ": " + amount)
	return f.refuse
}

func (f *fake) DeliverNotices(_ context.Context, id string) error {
	f.called("deliver " + id)
	return f.refuse
}

// TestActionsOnFanOuts: what a button of a page does, and what is said when it does not fit.
func TestActionsOnFanOuts(t *testing.T) {
	tests := []struct {
		path string
		form url.Values
		call string
	}{
		{pathDispatch + fanOutID + "/resume", nil, "resume all of " + fanOutID},
		{pathDispatch + fanOutID + "/retry", url.Values{"key": {"k"}}, "retry " + fanOutID + " as page k"},
		{pathDispatch + fanOutID + "/deliver", nil, "deliver " + fanOutID},
		{pathDispatch + fanOutID + "/budget", url.Values{"budget_usd": {"$1.50"}}, "budget of " + fanOutID + ": 1.5"},
		{pathSession + sessionID + "/budget", url.Values{"budget_usd": {" "}}, "budget of " + sessionID + ": none"},
	}
	for _, test := range tests {
		t.Run(test.path, func(t *testing.T) {
			f := newFake()
			s := serve(t, f)
			form := url.Values{"back": {pathSession + sessionID}}
			for k, v := range test.form {
				form[k] = v
			}
			res, _, _ := s.post(t, test.path, form)
			if res.StatusCode != http.StatusSeeOther || res.Header.Get("Location") != pathSession+sessionID {
				t.Errorf("%d to %q", res.StatusCode, res.Header.Get("Location"))
			}
			res, _, _ = s.post(t, test.path, form, "HX-Request", "true")
			if res.StatusCode != http.StatusNoContent {
				t.Errorf("a part of a page got %d", res.StatusCode)
			}
			if len(f.calls) != 2 || f.calls[0] != test.call {
				t.Errorf("calls %q, want %q twice", f.calls, test.call)
			}
			f.refuse = &forkcore.ConflictError{Message: "It does not fit.", NextStep: "Wait."}
			res, _, body := s.post(t, test.path, form, "HX-Request", "true")
			if res.StatusCode != http.StatusConflict || !strings.Contains(body, "It does not fit.") || !strings.Contains(body, "Wait.") {
				t.Errorf("a refusal: %d %s", res.StatusCode, body)
			}
		})
	}
	f := newFake()
	res, _, body := serve(t, f).post(t, pathSession+sessionID+"/budget", url.Values{"budget_usd": {"much"}}, "HX-Request", "true")
	if res.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, "much") || len(f.calls) > 0 {
		t.Errorf("no amount: %d %s, calls %v", res.StatusCode, body, f.calls)
	}
}

func TestFanOutActions(t *testing.T) {
	runs := []forkcore.Run{
		sampleFork(forkcore.Done), sampleFork(forkcore.Failed), sampleFork(forkcore.OverBudget), sampleFork(forkcore.Cancelled), sampleFork(forkcore.Running),
	}
	d := forkcore.Dispatch{ID: fanOutID, SessionID: sessionID, Remaining: 1, Undelivered: 4, Notify: forkcore.NotifyManual, BudgetNanoUSD: 2_000_000_000}
	d.Cost.NanoUSD = 2_000_000_000
	html := renderText(t, fanOutFoot("x", newFanOutActions(d, runs)))
	for _, want := range []string{"Resume 2", "Start 3 again", "Tell the agent now", "4 results", "when you say so", "Budget $2.0000, $0.0000 left", "Raise it"} {
		if !strings.Contains(strings.Join(strings.Fields(html), " "), want) {
			t.Errorf("%q is not in %s", want, html)
		}
	}
	if html := renderText(t, fanOutFoot("x", newFanOutActions(forkcore.Dispatch{ID: fanOutID}, runs[:1]))); strings.Contains(html, "<form") {
		t.Errorf("a fan-out that is done offers %s", html)
	}
}
