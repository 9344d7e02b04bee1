package engine

import (
	"context"
	"fmt"

	"forkyard/forkcore"
)

// Transcript returns the log of the run's agent after a seq, oldest first: the
// whole main log for a main turn. A fork's first message is shown assembled.
func (e *Engine) Transcript(ctx context.Context, runID string, after int64) ([]forkcore.TranscriptLine, error) {
	r, err := e.o.Store.Run(ctx, runID)
	if err != nil {
		return nil, err
	}
	entries, err := e.o.Store.Log(ctx, r.SessionID, r.AgentID, after, 0)
	if err != nil {
		return nil, err
	}
	lines := make([]forkcore.TranscriptLine, 0, len(entries))
	for _, en := range entries {
		line, err := e.line(ctx, r, en)
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// Assemble turns a log entry of an event, which carries no bytes, into its
// transcript line.
func (e *Engine) Assemble(ctx context.Context, sessionID string, en forkcore.Entry, agentID string) (forkcore.TranscriptLine, error) {
	if en.Kind == forkcore.EntryMessage && en.Bytes == nil {
		blobs, err := e.o.Store.Blobs(ctx, sessionID, en.Blob)
		if err != nil {
			return forkcore.TranscriptLine{}, err
		}
		en.Bytes = blobs[0]
	}
	if m := en.Marker; m != nil && m.Type == forkcore.MarkerToolResult && m.Bytes == nil && m.Blob != nil {
		blobs, err := e.o.Store.Blobs(ctx, sessionID, *m.Blob)
		if err != nil {
			return forkcore.TranscriptLine{}, err
		}
		filled := *m // the event's marker is shared by all who watch
		filled.Bytes = blobs[0]
		en.Marker = &filled
	}
	r := forkcore.Run{ID: en.RunID, SessionID: sessionID, AgentID: agentID}
	if en.Fragment {
		var err error
		if r, err = e.o.Store.Run(ctx, en.RunID); err != nil {
			return forkcore.TranscriptLine{}, err
		}
	}
	return e.line(ctx, r, en)
}

func (e *Engine) line(ctx context.Context, r forkcore.Run, en forkcore.Entry) (forkcore.TranscriptLine, error) {
	l := forkcore.TranscriptLine{Seq: en.Seq, At: en.At, Kind: en.Kind, RunID: en.RunID, Message: en.Bytes, Marker: en.Marker}
	if en.Fragment {
		s, err := e.snapshots.get(ctx, r.SessionID, r.Snapshot)
		if err != nil {
			return l, err
		}
		l.Message = forkcore.CloseSegment(s.open(), en.Bytes)
	}
	return l, nil
}

// RequestBody rebuilds the exact bytes of a request from the log and checks
// them against the digest that was stored when they were sent.
func (e *Engine) RequestBody(ctx context.Context, runID string, n int64) ([]byte, error) {
	body, _, err := e.requestBody(ctx, runID, n)
	return body, err
}

// canonical gives the bytes of a request without its marks, the close of the request included.
func (e *Engine) canonical(ctx context.Context, runID string, n int64) ([]byte, error) {
	body, row, err := e.requestBody(ctx, runID, n)
	if err != nil {
		return nil, err
	}
	return forkcore.StripMarks(body, row.Marks)
}

func (e *Engine) requestBody(ctx context.Context, runID string, n int64) (body []byte, row forkcore.RequestRow, err error) {
	r, err := e.o.Store.Run(ctx, runID)
	if err != nil {
		return nil, row, err
	}
	rows, err := e.o.Store.Requests(ctx, runID)
	if err != nil {
		return nil, row, err
	}
	for _, row := range rows {
		if row.N == n {
			body, err := e.rebuild(ctx, r, row)
			return body, row, err
		}
	}
	return nil, row, fmt.Errorf("request %d of run %s: %w", n, runID, forkcore.ErrNotFound)
}

func (e *Engine) rebuild(ctx context.Context, r forkcore.Run, row forkcore.RequestRow) ([]byte, error) {
	s, err := e.o.Store.Session(ctx, r.SessionID)
	if err != nil {
		return nil, err
	}
	var o origin
	if r.Kind == forkcore.KindMain {
		o, err = e.beginAtHead(ctx, s, s.Head) // a kept view may be beyond the request
	} else {
		o, err = e.begin(ctx, s, r)
	}
	if err != nil {
		return nil, err
	}
	if err := e.replay(ctx, o.view, s.ID, r.AgentID, int(row.LogSeq)); err != nil {
		return nil, err
	}
	if row.Refresh {
		o.params.MaxTokens = 0
	}
	body, err := o.view.Prefix.Body(row.Marks, o.params, row.Diagnostics)
	if err != nil {
		return nil, err
	}
	b := body.Bytes()
	if forkcore.DigestOf(b) != row.Body { // not body.Digest, which trusts what was hashed for siblings
		return nil, fmt.Errorf("request %d of run %s rebuilt from the log: %w", row.N, r.ID, forkcore.ErrCorrupt)
	}
	return b, nil
}

// SnapshotBytes returns a snapshot's canonical bytes, checked against its id.
func (e *Engine) SnapshotBytes(ctx context.Context, sessionID string, id forkcore.Digest) ([]byte, error) {
	s, err := e.snapshots.get(ctx, sessionID, id)
	if err != nil {
		return nil, err
	}
	b := s.base.Bytes()
	if forkcore.DigestOf(b) != id {
		return nil, fmt.Errorf("snapshot %s: %w", id, forkcore.ErrCorrupt)
	}
	return b, nil
}
