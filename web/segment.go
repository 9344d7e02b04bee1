package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"forkyard/forkcore"
)

// The kinds of segments that are no content blocks; the kind of a content block is its type.
const (
	segmentSettings = "settings"
	segmentTool     = "tool"
	segmentSystem   = "system"
)

// segment is a piece of a request as the provider reads it: the settings, a tool, a block of the system prompt or of a
// message. Start and End are canonical offsets: marks do not count.
type segment struct {
	Path       string // system.0, messages.3.content.1
	Kind       string
	Role       string // of messages
	Start, End int64
	Raw        []byte
	// Mark is the mark that stands at the end of this segment; MarkNo counts the request's marks from 1.
	Mark   *forkcore.Mark
	MarkNo int
}

// segments walks a request in the order tools, system, messages. messagesEnd is the canonical offset after the last
// message: what follows it is no part of any prefix. It cuts the bytes and encodes nothing anew.
func segments(body []byte, marks []forkcore.Mark) (list []segment, messagesEnd int64, err error) {
	canonical, err := forkcore.StripMarks(body, marks)
	if err != nil {
		return nil, 0, fmt.Errorf("taking the marks out of a request: %w", err)
	}
	w := segmentWalk{body: canonical, d: json.NewDecoder(bytes.NewReader(canonical))}
	if err := w.request(); err != nil {
		return nil, 0, fmt.Errorf("reading a request at byte %d: %w", w.d.InputOffset(), err)
	}
	next := 0
	for i := range w.list {
		for next < len(marks) && marks[next].Offset == w.list[i].End {
			w.list[i].Mark, w.list[i].MarkNo = &marks[next], next+1
			next++
		}
	}
	if next != len(marks) {
		return nil, 0, fmt.Errorf("mark %d (%s) stands at the end of no block", next+1, marks[next].Block)
	}
	return w.list, w.end, nil
}

// canonicalOf is the part of a body that prefixes are hashed over: without marks, through the last message.
func canonicalOf(body []byte, marks []forkcore.Mark) ([]byte, error) {
	_, end, err := segments(body, marks)
	if err != nil {
		return nil, err
	}
	canonical, err := forkcore.StripMarks(body, marks)
	if err != nil {
		return nil, err
	}
	return canonical[:end], nil
}

var errShape = errors.New("the bytes are not those of a request")

type segmentWalk struct {
	body []byte
	d    *json.Decoder
	list []segment
	end  int64
}

func (w *segmentWalk) request() error {
	if err := w.delim('{'); err != nil {
		return err
	}
	settings := int64(-1) // the offset after the last setting in front of the tools
	for w.d.More() {
		key, err := w.key()
		if err != nil {
			return err
		}
		switch key {
		case "tools", "system", "messages":
			if settings > 0 && len(w.list) == 0 {
				w.list = append(w.list, segment{Path: "settings", Kind: segmentSettings, End: settings, Raw: w.body[:settings]})
			}
			if err := w.array(key); err != nil {
				return err
			}
		default:
			if _, _, err := w.value(); err != nil {
				return err
			}
			settings = w.d.InputOffset()
		}
	}
	return w.delim('}')
}

// array reads one of the three parts.
func (w *segmentWalk) array(key string) error {
	if err := w.delim('['); err != nil {
		return err
	}
	for i := 0; w.d.More(); i++ {
		path := fmt.Sprintf("%s.%d", key, i)
		var err error
		switch key {
		case "tools":
			err = w.add(segment{Path: path, Kind: segmentTool})
		case "system":
			err = w.add(segment{Path: path, Kind: segmentSystem})
		default:
			err = w.message(path)
			w.end = w.d.InputOffset()
		}
		if err != nil {
			return err
		}
	}
	return w.delim(']')
}

func (w *segmentWalk) message(path string) error {
	if err := w.delim('{'); err != nil {
		return err
	}
	role := ""
	for w.d.More() {
		key, err := w.key()
		if err != nil {
			return err
		}
		if key != "content" {
			start, end, err := w.value()
			if err != nil {
				return err
			}
			if key == "role" {
				_ = json.Unmarshal(w.body[start:end], &role) // what is no string is no role
			}
			continue
		}
		if err := w.delim('['); err != nil {
			return err
		}
		for i := 0; w.d.More(); i++ {
			if err := w.add(segment{Path: fmt.Sprintf("%s.content.%d", path, i), Role: role}); err != nil {
				return err
			}
		}
		if err := w.delim(']'); err != nil {
			return err
		}
	}
	return w.delim('}')
}

// add reads a value as a segment. Without a kind it is a content block, whose kind is its type.
func (w *segmentWalk) add(s segment) error {
	start, end, err := w.value()
	if err != nil {
		return err
	}
	s.Start, s.End, s.Raw = start, end, w.body[start:end]
	if s.Kind == "" {
		var block struct {
			Type string `json:"type"`
		}
		_ = json.Unmarshal(s.Raw, &block) // what has no type is shown without one
		s.Kind = block.Type
	}
	w.list = append(w.list, s)
	return nil
}

// value reads one value and tells where its bytes are.
func (w *segmentWalk) value() (start, end int64, err error) {
	var raw json.RawMessage
	if err := w.d.Decode(&raw); err != nil {
		return 0, 0, err
	}
	end = w.d.InputOffset()
	return end - int64(len(raw)), end, nil
}

func (w *segmentWalk) key() (string, error) {
	t, err := w.d.Token()
	if err != nil {
		return "", err
	}
	key, ok := t.(string)
	if !ok {
		return "", errShape
	}
	return key, nil
}

func (w *segmentWalk) delim(want json.Delim) error {
	t, err := w.d.Token()
	if err != nil {
		return err
	}
	if t != want {
		return errShape
	}
	return nil
}

// segmentText is what a person reads of a segment: the text of texts and tool results, the JSON of everything else.
func segmentText(s segment) string {
	var b struct {
		Type    string `json:"type"`
		Text    string `json:"text"`
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
	}
	if s.Kind == segmentSettings || s.Kind == segmentTool || json.Unmarshal(s.Raw, &b) != nil {
		return string(s.Raw)
	}
	switch {
	case b.Type == "text":
		return b.Text
	case b.Type == "tool_result" && len(b.Content) == 1 && b.Content[0].Type == "text":
		return b.Content[0].Text
	}
	return string(s.Raw)
}

// segmentHeadline is the first line of a segment.
func segmentHeadline(s segment) string {
	const limit = 140
	var b struct {
		Name  string          `json:"name"`
		Input json.RawMessage `json:"input"`
	}
	switch s.Kind {
	case segmentTool:
		if json.Unmarshal(s.Raw, &b) == nil && b.Name != "" {
			return shorten(b.Name, limit)
		}
	case "tool_use":
		if json.Unmarshal(s.Raw, &b) == nil && b.Name != "" {
			return shorten(b.Name+" "+forkcore.CutText(string(b.Input), 4*limit), limit)
		}
	}
	return shorten(forkcore.CutText(segmentText(s), 4*limit), limit)
}

// readEnd tells up to which canonical offset a request was read from the cache and up to which it was written or read.
// A response counts tokens, not bytes: the offset of the read is known exactly when all or nothing was read, or when the
// count is that of a mark that both this request and the one that wrote the entry carry; else it is the mark whose share
// of the bytes comes nearest, and exact is false. writer is the row of the request whose entry was read, or nil.
func readEnd(row forkcore.RequestRow, writer *forkcore.RequestRow) (read, cached int64, exact bool) {
	if row.Usage == nil || row.Usage.Cached() == 0 || len(row.Marks) == 0 {
		return 0, 0, true
	}
	last := row.Marks[len(row.Marks)-1].Offset
	switch {
	case row.Usage.CacheRead == 0:
		return 0, last, true
	case row.Usage.CacheRead == row.Usage.Cached():
		return last, last, true
	}
	if writer != nil && writer.Usage != nil && writer.Usage.Cached() == row.Usage.CacheRead && len(writer.Marks) > 0 {
		end := writer.Marks[len(writer.Marks)-1].Offset
		for _, m := range row.Marks {
			if m.Offset == end {
				return end, last, true
			}
		}
	}
	best, distance := int64(0), row.Usage.CacheRead
	for _, m := range row.Marks {
		estimate := int64(float64(row.Usage.Cached()) * float64(m.Offset) / float64(last))
		if d := abs(estimate - row.Usage.CacheRead); d < distance {
			best, distance = m.Offset, d
		}
	}
	return best, last, false
}

func abs(n int64) int64 {
	if n < 0 {
		return -n
	}
	return n
}
