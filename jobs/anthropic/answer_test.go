package anthropic

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
)

// Pieces of streams, in the API's own form.
const (
	msgStart = `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"usage":{"input_tokens":9,"cache_creation_input_tokens":500,"cache_read_input_tokens":1000,"cache_creation":{"ephemeral_5m_input_tokens":500,"ephemeral_1h_input_tokens":0},"output_tokens":1}}}`
	msgStop  = `{"type":"message_stop"}`
)

func blockStart(index, block string) string {
	return `{"type":"content_block_start","index":` + index + `,"content_block":` + block + `}`
}

func blockDelta(index, delta string) string {
	return `{"type":"content_block_delta","index":` + index + `,"delta":` + delta + `}`
}

func blockStop(index string) string { return `{"type":"content_block_stop","index":` + index + `}` }

func msgDelta(reason string) string {
	return `{"type":"message_delta","delta":{"stop_reason":"` + reason + `","stop_sequence":null},"usage":{"output_tokens":16}}`
}

// textBlock is a whole text block; text is a JSON string body.
func textBlock(index, text string) []string {
	return []string{blockStart(index, `{"type":"text","text":""}`), blockDelta(index, `{"type":"text_delta","text":"`+text+`"}`), blockStop(index)}
}

// sse frames events the way the API does, with the given line end.
func sse(eol string, events ...string) string {
	var s strings.Builder
	for _, e := range events {
		s.WriteString("event: " + decodeString(member([]byte(e), "type")) + eol + "data: " + e + eol + eol)
	}
	return s.String()
}

// turn is a complete stream with the given events between start and end.
func turn(reason string, events ...string) string {
	return sse("\n", append(append([]string{msgStart}, events...), msgDelta(reason), msgStop)...)
}

// readAll reads a raw stream the way the client does.
func readAll(r io.Reader) (deltas []forkcore.ModelDelta, end *forkcore.ModelEnd, err error) {
	end, err = newAnswer(testEndpoint("anthropic"), "req_1", slog.New(slog.DiscardHandler)).read(newEventReader(r), func(e forkcore.ModelEvent, _ error) bool {
		if d, ok := e.(*forkcore.ModelDelta); ok {
			deltas = append(deltas, *d)
		}
		return true
	})
	return deltas, end, err
}

func blockStrings(end *forkcore.ModelEnd) []string {
	var s []string
	for _, b := range end.Blocks {
		s = append(s, string(b))
	}
	return s
}

func concat(parts ...[]string) []string {
	var s []string
	for _, p := range parts {
		s = append(s, p...)
	}
	return s
}

func TestB18_B44_B46_AnswerBlocks(t *testing.T) {
	tool := func(start string, pieces ...string) []string {
		s := []string{blockStart("0", start)}
		for _, p := range pieces {
			lit, _ := json.Marshal(p)
			s = append(s, blockDelta("0", `{"type":"input_json_delta","partial_json":`+string(lit)+`}`))
		}
		return append(s, blockStop("0"))
	}
	const toolStart = `{"type":"tool_use","id":"toolu_1","name":"Bash","input":{}}`
	for _, tt := range []struct {
		name   string
		events []string
		want   []string
	}{
		{"text", textBlock("0", "hello"), []string{`{"type":"text","text":"hello"}`}},
		{"B45 text keeps < > & and line separators", textBlock("0", `a\u003cb&c>d\u2028`), []string{"{\"type\":\"text\",\"text\":\"a<b&c>d\u2028\"}"}},
		{"text in start and deltas", []string{
			blockStart("0", `{"type":"text","text":"a"}`), blockDelta("0", `{"type":"text_delta","text":"b"}`), blockDelta("0", `{"type":"text_delta","text":"c"}`), blockStop("0"),
		}, []string{`{"type":"text","text":"abc"}`}},
		{"B46 surrogate pair cut between deltas", []string{
			blockStart("0", `{"type":"text","text":""}`), blockDelta("0", `{"type":"text_delta","text":"\ud83d"}`), blockDelta("0", `{"type":"text_delta","text":"\ude42"}`), blockStop("0"),
		}, []string{`{"type":"text","text":"🙂"}`}},
		{"B46 lone surrogate in text is cleaned", textBlock("0", `ok\ud83d`), []string{`{"type":"text","text":"ok�"}`}},
		{"NUL in text is cleaned", textBlock("0", `a\u0000b`), []string{`{"type":"text","text":"a␀b"}`}},
		{"rune cut between deltas", []string{
			blockStart("0", `{"type":"text","text":""}`), blockDelta("0", "{\"type\":\"text_delta\",\"text\":\"\xe5\"}"), blockDelta("0", "{\"type\":\"text_delta\",\"text\":\"\xa5\xbd\"}"), blockStop("0"),
		}, []string{`{"type":"text","text":"好"}`}},
		{
			"empty text is dropped", concat([]string{blockStart("0", `{"type":"text","text":""}`), blockStop("0")}, textBlock("1", `\n\n`), textBlock("2", "x")),
			[]string{`{"type":"text","text":"x"}`},
		},
		{"citations are kept", []string{
			blockStart("0", `{"citations":[],"type":"text","text":"","x":{"b": 1}}`),
			blockDelta("0", `{"type":"text_delta","text":"a"}`),
			blockDelta("0", `{"type":"citations_delta","citation":{"type":"char_location","start_char_index": 0,"cited_text":"<q>"}}`),
			blockDelta("0", `{"type":"citations_delta","citation":{"n":12345678901234567890}}`),
			blockStop("0"),
		}, []string{`{"type":"text","text":"a","citations":[{"type":"char_location","start_char_index": 0,"cited_text":"<q>"},{"n":12345678901234567890}],"x":{"b": 1}}`}},
		{"B09 thinking with its signature", []string{
			blockStart("0", `{"type":"thinking","thinking":"","signature":""}`),
			blockDelta("0", `{"type":"thinking_delta","thinking":"ab<"}`), blockDelta("0", `{"type":"thinking_delta","thinking":"c"}`),
			blockDelta("0", `{"type":"signature_delta","signature":"QU"}`), blockDelta("0", `{"type":"signature_delta","signature":"JD+/=="}`),
			blockStop("0"),
		}, []string{`{"type":"thinking","thinking":"ab<c","signature":"QUJD+/=="}`}},
		{"omitted thinking", []string{
			blockStart("0", `{"type":"thinking","thinking":"","signature":""}`), blockDelta("0", `{"type":"signature_delta","signature":"QUJD"}`), blockStop("0"),
		}, []string{`{"type":"thinking","thinking":"","signature":"QUJD"}`}},
		{"B18 redacted and unknown blocks in order", concat(
			[]string{blockStart("0", `{"type":"redacted_thinking","data":"EjQB"}`), blockStop("0")},
			[]string{blockStart("1", `{"type":"thinking","thinking":"","signature":""}`), blockDelta("1", `{"type":"signature_delta","signature":"QUJD"}`), blockStop("1")},
			[]string{blockStart("2", `{"type":"future_x","k":1, "z":1e2,"a":"<\u003c"}`), blockStop("2")},
			[]string{blockStart("3", toolStart), blockStop("3")},
		), []string{`{"type":"redacted_thinking","data":"EjQB"}`, `{"type":"thinking","thinking":"","signature":"QUJD"}`, `{"type":"future_x","k":1, "z":1e2,"a":"<\u003c"}`, toolStart}},
		{"tool input without deltas", tool(toolStart), []string{toolStart}},
		{"tool input with empty deltas", tool(toolStart, "", ""), []string{toolStart}},
		{"tool input given whole in start", tool(`{"type":"tool_use","name":"Bash","input":{"z": 1},"id":"t"}`), []string{`{"type":"tool_use","id":"t","name":"Bash","input":{"z": 1}}`}},
		{"tool start with an empty string as input", tool(`{"type":"tool_use","id":"t","name":"Bash","input":""}`), []string{`{"type":"tool_use","id":"t","name":"Bash","input":{}}`}},
		{
			"B44 numbers, key order and white space of tool input", tool(toolStart, "", `{"id":9007199254740993,"x":1`, `.0,"y":1e2, "a" :  "<b>&`+"\u2028"+`"}`),
			[]string{`{"type":"tool_use","id":"toolu_1","name":"Bash","input":{"id":9007199254740993,"x":1.0,"y":1e2, "a" :  "<b>&` + "\u2028" + `"}}`},
		},
		{
			"escapes of tool input", tool(toolStart, `{"c":"\u00`, `e9\/\ud83d`, `\ude42"}`),
			[]string{`{"type":"tool_use","id":"toolu_1","name":"Bash","input":{"c":"\u00e9\/\ud83d\ude42"}}`},
		},
		{
			"line breaks between tokens become spaces", tool(toolStart, "\n{\r\n\t\"c\":\"a\\nb\"\n}\n"),
			[]string{`{"type":"tool_use","id":"toolu_1","name":"Bash","input":{  ` + "\t" + `"c":"a\nb" }}`},
		},
		{
			"other members of a tool_use follow", tool(`{"caller":{"type":"direct"},"type":"tool_use","id":"t","name":"n","input":{},"toolset_name":"<s>"}`, `{"a":1}`),
			[]string{`{"type":"tool_use","id":"t","name":"n","input":{"a":1},"caller":{"type":"direct"},"toolset_name":"<s>"}`},
		},
		{
			"input of a server tool keeps its place", tool(`{"type":"server_tool_use","id":"s","name":"web_search","input":{},"caller":null}`, `{"query":"x"}`),
			[]string{`{"type":"server_tool_use","id":"s","name":"web_search","input":{"query":"x"},"caller":null}`},
		},
		{"interleaved blocks", []string{
			blockStart("0", `{"type":"text","text":""}`), blockStart("1", `{"type":"text","text":""}`),
			blockDelta("1", `{"type":"text_delta","text":"1"}`), blockDelta("0", `{"type":"text_delta","text":"0"}`), blockStop("1"), blockStop("0"),
		}, []string{`{"type":"text","text":"0"}`, `{"type":"text","text":"1"}`}},
		{"unknown events and pings are ignored", concat([]string{`{"type":"ping"}`, `{"type":"future_event","index":0}`}, textBlock("0", "x")), []string{`{"type":"text","text":"x"}`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			raw := turn("end_turn", tt.events...)
			for how, r := range map[string]io.Reader{
				"whole":                 strings.NewReader(raw),
				"one byte per read":     iotest.OneByteReader(strings.NewReader(raw)),
				"CRLF, byte per read":   iotest.OneByteReader(strings.NewReader(strings.ReplaceAll(raw, "\n", "\r\n"))),
				"CR only":               strings.NewReader(strings.ReplaceAll(raw, "\n", "\r")),
				"error with last bytes": iotest.DataErrReader(strings.NewReader(raw)),
			} {
				_, end, err := readAll(r)
				if err != nil {
					t.Fatalf("%s: %v", how, err)
				}
				if diff := cmp.Diff(tt.want, blockStrings(end)); diff != "" {
					t.Errorf("%s: blocks (-want +got):\n%s", how, diff)
				}
			}
		})
	}
}

func TestB09_B15_B16_B46_AnswerFailures(t *testing.T) {
	const toolStart = `{"type":"tool_use","id":"t1","name":"Bash","input":{}}`
	input := func(piece string) []string {
		return []string{blockStart("0", toolStart), blockDelta("0", `{"type":"input_json_delta","partial_json":"`+piece+`"}`), blockStop("0")}
	}
	for _, tt := range []struct {
		name      string
		raw       string
		code      string
		retryable bool
		text      string
	}{
		{"B15 end without message_stop", sse("\n", concat([]string{msgStart}, textBlock("0", "half"))...), forkcore.CodeStreamCut, true, "no message_stop"},
		{"B15 end after message_delta", strings.TrimSuffix(turn("end_turn", textBlock("0", "x")...), sse("\n", msgStop)), forkcore.CodeStreamCut, true, "no message_stop"},
		{"empty body", "", forkcore.CodeStreamCut, true, "no message_stop"},
		{"message_stop in half a line", strings.TrimSuffix(turn("end_turn"), "}\n\n"), forkcore.CodeStreamCut, true, "no message_stop"},
		{"B09 block without its stop", turn("end_turn", blockStart("0", `{"type":"thinking","thinking":"","signature":""}`), blockDelta("0", `{"type":"signature_delta","signature":"QUJD"}`)), forkcore.CodeStreamCut, true, "never closed"},
		{"B16 overloaded in the stream", sse("\n", msgStart, blockStart("0", toolStart), blockDelta("0", `{"type":"input_json_delta","partial_json":"{\"comm"}`), `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), forkcore.CodeOverloaded, true, "Overloaded"},
		{"rate limit in the stream", sse("\n", `{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}`), forkcore.CodeRateLimited, true, "slow"},
		{"api_error in the stream", sse("\n", msgStart, `{"type":"error","error":{"type":"api_error","message":"boom"}}`), forkcore.CodeProviderError, true, "boom"},
		{"unknown error in the stream", sse("\n", msgStart, `{"type":"error","error":{"type":"new_error","message":"boom"}}`), forkcore.CodeProviderError, true, "boom"},
		{"bare error object", "data: {\"error\":{\"type\":\"overloaded_error\",\"message\":\"m\"}}\n\n", forkcore.CodeOverloaded, true, "m"},
		{"prompt too long in the stream", sse("\n", `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8"}}`), forkcore.CodeContextWindow, false, "too long"},
		{"bad request in the stream", sse("\n", `{"type":"error","error":{"type":"invalid_request_error","message":"no"}}`), forkcore.CodeProviderError, false, "no"},
		{"not JSON", "data: <html>\n\n", forkcore.CodeInvalidResponse, true, "not valid JSON"},
		{"text before message_start", sse("\n", textBlock("0", "x")...), forkcore.CodeInvalidResponse, true, "before message_start"},
		{"two message_start", turn("end_turn", msgStart), forkcore.CodeInvalidResponse, true, "second"},
		{"no stop reason", sse("\n", msgStart, msgStop), forkcore.CodeInvalidResponse, true, "stop reason"},
		{"repeated index", turn("end_turn", concat(textBlock("0", "x"), textBlock("0", "y"))...), forkcore.CodeInvalidResponse, true, "index"},
		{"delta for no block", turn("end_turn", blockDelta("3", `{"type":"text_delta","text":"x"}`)), forkcore.CodeInvalidResponse, true, "block 3"},
		{"delta after stop", turn("end_turn", concat(textBlock("0", "x"), []string{blockDelta("0", `{"type":"text_delta","text":"x"}`)})...), forkcore.CodeInvalidResponse, true, "not open"},
		{"unknown delta", turn("end_turn", blockStart("0", `{"type":"text","text":""}`), blockDelta("0", `{"type":"future_delta","x":1}`)), forkcore.CodeInvalidResponse, false, "future_delta"},
		{"known delta for an unknown block", turn("end_turn", blockStart("0", `{"type":"future_x","k":1}`), blockDelta("0", `{"type":"text_delta","text":"x"}`)), forkcore.CodeInvalidResponse, false, "future_x"},
		{"B46 lone surrogate escape in tool input", turn("tool_use", input(`{\"c\":\"\\ud83d\"}`)...), forkcore.CodeInvalidResponse, true, "not a valid JSON object"},
		{"B46 lone surrogate in the stream of a tool input", turn("tool_use", input(`{\"c\":\"\ud83d\"}`)...), forkcore.CodeInvalidResponse, true, "lone surrogate"},
		{"B46 lone surrogate in an unknown block", turn("end_turn", blockStart("0", `{"type":"future_x","k":"\ud83d"}`), blockStop("0")), forkcore.CodeInvalidResponse, true, "lone surrogate"},
		{"half a tool input", turn("tool_use", input(`{\"c\":`)...), forkcore.CodeInvalidResponse, true, "not a valid JSON object"},
		{"array as tool input", turn("tool_use", input(`[1]`)...), forkcore.CodeInvalidResponse, true, "not a valid JSON object"},
		{"duplicate tool ids", turn("tool_use", blockStart("0", toolStart), blockStop("0"), blockStart("1", toolStart), blockStop("1")), forkcore.CodeInvalidResponse, true, "twice"},
		{"empty tool id", turn("tool_use", blockStart("0", `{"type":"tool_use","id":"","name":"Bash","input":{}}`), blockStop("0")), forkcore.CodeInvalidResponse, true, "empty"},
		{"empty tool name", turn("tool_use", blockStart("0", `{"type":"tool_use","id":"t","input":{}}`), blockStop("0")), forkcore.CodeInvalidResponse, true, "name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, end, err := readAll(iotest.OneByteReader(strings.NewReader(tt.raw)))
			if err == nil {
				t.Fatalf("no error, blocks %q", blockStrings(end))
			}
			c := newTestClient(t, Options{})
			got := c.streamError(t.Context(), t.Context(), c.access.Load(), http.Header{"Request-Id": {"req_1"}}, err)
			var e *forkcore.ModelError
			if !errors.As(got, &e) {
				t.Fatalf("got %T, want *ModelError", got)
			}
			if e.Code != tt.code || e.Retryable != tt.retryable || e.Status != 200 || e.ProviderRequestID != "req_1" || !strings.Contains(e.Message, tt.text) {
				t.Errorf("got %+v\nwant code %s, retryable %v, status 200, text %q", e, tt.code, tt.retryable, tt.text)
			}
		})
	}
}

func TestB49_RunesAndLongLines(t *testing.T) {
	long := strings.Repeat("x", 70_000)
	raw := ": x\r\n" + strings.ReplaceAll(turn("end_turn", concat(textBlock("0", "好🙂"), textBlock("1", long))...), "\n", "\r\n")
	_, end, err := readAll(iotest.OneByteReader(strings.NewReader(raw)))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`{"type":"text","text":"好🙂"}`, `{"type":"text","text":"` + long + `"}`}
	if diff := cmp.Diff(want, blockStrings(end)); diff != "" {
		t.Error(diff)
	}
}

func TestMaxTokensInsideToolInput(t *testing.T) {
	half := []string{blockStart("1", `{"type":"tool_use","id":"t1","name":"Write","input":{}}`), blockDelta("1", `{"type":"input_json_delta","partial_json":"{\"a\":\"b"}`), blockStop("1")}
	_, end, err := readAll(strings.NewReader(turn("max_tokens", concat(textBlock("0", "x"), half)...)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{`{"type":"text","text":"x"}`}, blockStrings(end)); diff != "" || end.StopReason != "max_tokens" {
		t.Errorf("stop reason %q, blocks (-want +got):\n%s", end.StopReason, diff)
	}
}

func TestDeltas(t *testing.T) {
	got, _, err := readAll(strings.NewReader(turn("tool_use", concat(
		[]string{blockStart("0", `{"type":"thinking","thinking":"","signature":""}`), blockDelta("0", `{"type":"thinking_delta","thinking":"hm"}`), blockDelta("0", `{"type":"signature_delta","signature":"QQ"}`), blockStop("0")},
		[]string{blockStart("1", `{"type":"text","text":"a"}`), blockDelta("1", `{"type":"text_delta","text":"<\n"}`), blockStop("1")},
		[]string{blockStart("2", `{"type":"tool_use","id":"t","name":"Bash","input":{}}`), blockDelta("2", `{"type":"input_json_delta","partial_json":""}`), blockDelta("2", `{"type":"input_json_delta","partial_json":"{\"a\":1}"}`), blockStop("2")},
	)...)))
	if err != nil {
		t.Fatal(err)
	}
	want := []forkcore.ModelDelta{
		{Index: 0, Kind: "thinking", Text: "hm"},
		{Index: 1, Kind: "text", Text: "a"},
		{Index: 1, Kind: "text", Text: "<\n"},
		{Index: 2, Kind: "tool_input", ToolName: "Bash"},
		{Index: 2, Kind: "tool_input", Text: `{"a":1}`},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// FuzzAnswer feeds arbitrary bytes as a stream. Whatever is accepted must be
// blocks that are valid, one line each, and unchanged when they come again as
// the start of a block.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(turn("end_turn", textBlock("0", `a\ud83d\ude42<`)...)))
	f.Add([]byte(turn("tool_use", blockStart("0", `{"type":"tool_use","id":"t","name":"n","input":{},"caller":{"x":1}}`), blockDelta("0", `{"type":"input_json_delta","partial_json":" {\"a\" :1e2} "}`), blockStop("0"))))
	f.Add([]byte(turn("end_turn", blockStart("0", `{"type":"text","citations":[ {"a":1} ],"text":"x"}`), blockDelta("0", `{"type":"citations_delta","citation":{}}`), blockStop("0"))))
	f.Add([]byte(turn("end_turn", blockStart("0", `{"type":"x", "k":[1,{"a":"]"}]}`), blockStop("0"))))
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, end, err := readAll(strings.NewReader(string(raw)))
		_, end1, err1 := readAll(iotest.OneByteReader(strings.NewReader(string(raw))))
		if (err == nil) != (err1 == nil) {
			t.Fatalf("whole: %v, byte by byte: %v", err, err1)
		}
		if err != nil {
			return
		}
		if diff := cmp.Diff(end, end1); diff != "" {
			t.Fatalf("whole and byte by byte differ:\n%s", diff)
		}
		for _, b := range end.Blocks {
			if !json.Valid(b) || strings.ContainsAny(string(b), "\r\n") {
				t.Fatalf("not one line of JSON: %q", b)
			}
			again, err := newBlock(b)
			if err != nil {
				t.Fatal(err)
			}
			got, err := again.encode()
			if err != nil || string(got) != string(b) {
				t.Fatalf("%q came back as %q, %v", b, got, err)
			}
		}
	})
}
