package browsertest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
)

// journal keeps what happened in a tab.
type journal struct {
	dialog func() // closes the dialog that opened

	mu        sync.Mutex
	urls      map[network.RequestID]string
	requests  []string
	found     []string
	tolerated []*regexp.Regexp
}

func newJournal() *journal { return &journal{urls: map[network.RequestID]string{}} }

// note takes in an event of the browser.
func (j *journal) note(event any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	problem := func(format string, a ...any) { j.found = append(j.found, fmt.Sprintf(format, a...)) }
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		j.urls[e.RequestID] = e.Request.Method + " " + e.Request.URL
		j.requests = append(j.requests, j.urls[e.RequestID])
	case *network.EventResponseReceived:
		if e.Response.Status >= 400 {
			problem("%s: status %d", j.urls[e.RequestID], e.Response.Status)
		}
	case *network.EventLoadingFailed:
		// The page itself gave it up: a stream that is closed, a page that is left.
		if !e.Canceled {
			problem("%s: %s %s", j.urls[e.RequestID], e.ErrorText, e.BlockedReason)
		}
	case *log.EventEntryAdded:
		// What the network source says was noted above, with its method.
		if e.Entry.Source != log.EntrySourceNetwork && (e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning) {
			problem("%s %s: %s (%s:%d)", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL, e.Entry.LineNumber)
		}
	case *runtime.EventConsoleAPICalled:
		switch e.Type {
		case runtime.ConsoleAPICalledTypeError, runtime.ConsoleAPICalledTypeWarning, runtime.ConsoleAPICalledTypeAssert:
			var args []string
			for _, a := range e.Args {
				args = append(args, described(a))
			}
			problem("console.%s: %s", e.Type, strings.Join(args, " "))
		}
	case *runtime.EventExceptionThrown:
		d := e.ExceptionDetails
		text := d.Text
		if d.Exception != nil {
			text += " " + described(d.Exception)
		}
		problem("exception: %s (%s:%d)", text, d.URL, d.LineNumber+1)
	case *page.EventJavascriptDialogOpening:
		problem("dialog: %s %q", e.Type, e.Message)
		j.dialog()
	}
}

func described(o *runtime.RemoteObject) string {
	if o.Description != "" {
		return o.Description
	}
	var text string
	if json.Unmarshal(o.Value, &text) == nil {
		return text
	}
	return string(o.Value)
}

func (j *journal) tolerate(pattern *regexp.Regexp) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tolerated = append(j.tolerated, pattern)
}

func (j *journal) problems() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var left []string
	for _, p := range j.found {
		expected := false
		for _, pattern := range j.tolerated {
			expected = expected || pattern.MatchString(p)
		}
		if !expected {
			left = append(left, p)
		}
	}
	j.found = nil
	return left
}
