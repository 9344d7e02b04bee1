package modelsim

import (
	"net/http"
	"sync"
	"time"
)

// Captured is one request to /v1/messages as it came, and what became of it.
type Captured struct {
	// N counts requests from 1 in order of arrival; it goes on when old ones are dropped.
	N int
	// Body is the body byte for byte; nil when it was over the limit.
	Body []byte
	// Header holds the request's headers; the key is left out.
	Header http.Header
	// Key is a fingerprint of the key, Workspace the id of its workspace.
	Key, Workspace string
	RequestID      string
	// MessageID, Model and Stream are set once the request was found valid.
	MessageID string
	Model     string
	Stream    bool
	// Started is the arrival, Begun the message_start (or the answer without streaming), Ended the end of the answer;
	// zero while not reached.
	Started, Begun, Ended time.Time
	// Status is the HTTP status, 0 while there is none.
	Status int
	// Usage is what was reported last; nil without an answer.
	Usage      *Usage
	StopReason string
	// Error says what went wrong: the API error, an acted-out fault or a client that went away; "" when all is well.
	Error string
}

// recorder keeps the latest requests.
type recorder struct {
	limit, bytes int

	mu   sync.Mutex
	n    int
	size int
	all  []*Captured
}

// add keeps c and returns it for update.
func (r *recorder) add(c Captured) *Captured {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	c.N = r.n
	r.all = append(r.all, &c)
	r.size += len(c.Body)
	for len(r.all) > 1 && (len(r.all) > r.limit || r.size > r.bytes) {
		r.size -= len(r.all[0].Body)
		r.all[0] = nil // let the array go of it
		r.all = r.all[1:]
	}
	return &c
}

// update changes a kept request under the recorder's lock.
func (r *recorder) update(c *Captured, change func(*Captured)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(c)
}

func (r *recorder) list() []Captured {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Captured, len(r.all))
	for i, c := range r.all {
		out[i] = *c
	}
	return out
}

// forget drops what is kept; numbers go on.
func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all, r.size = nil, 0
}

// arrive records a request.
func (s *Server) arrive(r *http.Request, body []byte, start time.Time) *Captured {
	c := callerOf(r.Context())
	header := r.Header.Clone()
	for _, secret := range []string{"Authorization", "X-Api-Key", "Cookie"} {
		header.Del(secret)
	}
	return s.record.add(Captured{
		Body: body, Header: header, Key: c.key, Workspace: c.workspace, RequestID: c.requestID, Started: start,
	})
}

// refuse records a messages request that is answered before its body is read.
func (s *Server) refuse(r *http.Request, err *apiError) {
	if r.URL.Path != messagesPath {
		return
	}
	now := s.opts.Now()
	c := s.arrive(r, nil, now)
	s.record.update(c, func(c *Captured) { c.Status, c.Error, c.Ended = err.status, err.Error(), now })
}

// shown is the JSON form of a captured request.
type shown struct {
	N          int         `json:"n"`
	Body       string      `json:"body"`
	BodyBase64 []byte      `json:"body_base64"`
	Header     http.Header `json:"header"`
	Key        string      `json:"key"`
	Workspace  string      `json:"workspace"`
	RequestID  string      `json:"request_id"`
	MessageID  string      `json:"message_id"`
	Model      string      `json:"model"`
	Stream     bool        `json:"stream"`
	StartedAt  time.Time   `json:"started_at"`
	BegunAt    *time.Time  `json:"begun_at"`
	EndedAt    *time.Time  `json:"ended_at"`
	Status     int         `json:"status"`
	Usage      *Usage      `json:"usage"`
	StopReason string      `json:"stop_reason"`
	Error      string      `json:"error"`
}

func (c *Captured) shown() shown {
	at := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	return shown{
		N: c.N, Body: string(c.Body), BodyBase64: c.Body, Header: c.Header, Key: c.Key, Workspace: c.Workspace,
		RequestID: c.RequestID, MessageID: c.MessageID, Model: c.Model, Stream: c.Stream, StartedAt: c.Started,
		BegunAt: at(c.Begun), EndedAt: at(c.Ended), Status: c.Status, Usage: c.Usage, StopReason: c.StopReason, Error: c.Error,
	}
}
