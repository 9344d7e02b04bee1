package modelsim

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// conversation wraps messages in a request that is valid otherwise.
func conversation(messages string) string {
	return `{"model":"claude-sonnet-5-5","max_tokens":100,"messages":[` + messages + `]}`
}

func extra(members string) string {
	return `{"model":"claude-sonnet-5-5","max_tokens":100,"messages":[{"role":"user","content":"hello"}],` + members + `}`
}

func marked(ttl string) string {
	if ttl == "" {
		return `"cache_control":{"type":"ephemeral"}`
	}
	return `"cache_control":{"type":"ephemeral","ttl":"` + ttl + `"}`
}

func textMarked(s, ttl string) string {
	return `{"type":"text","text":"` + s + `",` + marked(ttl) + `}`
}

const (
	ask   = `{"role":"user","content":"go"}`
	calls = `{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"A","input":{}},{"type":"tool_use","id":"t2","name":"A","input":{}}]}`
	res1  = `{"type":"tool_result","tool_use_id":"t1","content":"1"}`
	res2  = `{"type":"tool_result","tool_use_id":"t2","content":"2"}`
	note  = `{"type":"text","text":"note"}`

	search    = `{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"q"}}`
	searching = `{"role":"assistant","content":[` + search + `]}`
	image     = `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}}`
)

// foreseen is the signature of a first thinking block after ask.
func foreseen(thinking string) string {
	_, p, err := New(Options{}).read(newRequest(context.Background(), "POST", "/", conversation(ask)), false)
	if err != nil {
		panic(err)
	}
	b := ThinkingBlock(thinking, "")
	newSigner(p, []Block{b}).sign(&b)
	return b.Signature
}

func user(blocks ...string) string {
	return `{"role":"user","content":[` + strings.Join(blocks, ",") + `]}`
}

func TestValidation(t *testing.T) {
	const missing = "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
	for _, tc := range []struct {
		name, body string
		want       string // the message; "" means the request is accepted
		changes    []header
	}{
		{name: "not json", body: `{"model":`, want: "The request body is not valid JSON."},
		{name: "bad UTF-8", body: conversation(user("{\"type\":\"text\",\"text\":\"a\xff\"}")), want: "The request body is not valid JSON."},
		{name: "lone surrogate", body: conversation(user(`{"type":"text","text":"a\ud83d"}`)), want: "The request body is not valid JSON."},
		{name: "surrogates in the wrong order", body: conversation(user(`{"type":"text","text":"a\ude42\ud83d"}`)), want: "The request body is not valid JSON."},
		{name: "surrogate pair", body: conversation(user(`{"type":"text","text":"a\ud83d\ude42 \\ud83d"}`))},
		{name: "not an object", body: `[]`, want: "Input should be a valid dictionary or object"},
		{name: "no model", body: `{"max_tokens":1,"messages":[]}`, want: "model: Field required"},
		{name: "no max_tokens", body: `{"model":"claude-sonnet-5-5","messages":[` + ask + `]}`, want: "max_tokens: Field required"},
		{name: "no messages", body: `{"model":"claude-sonnet-5-5","max_tokens":1}`, want: "messages: Field required"},
		{name: "empty messages", body: conversation(""), want: "messages: at least one message is required"},
		{name: "max_tokens over model", body: strings.Replace(hello, "100", "128001", 1), want: "max_tokens: 128001 > 128000, which is the maximum allowed number of output tokens for claude-sonnet-5-5"},
		{name: "max_tokens at model", body: strings.Replace(hello, "100", "128000", 1)},
		{name: "negative max_tokens", body: strings.Replace(hello, "100", "-1", 1), want: "max_tokens: Input should be greater than or equal to 0"},
		{name: "fractional max_tokens", body: strings.Replace(hello, "100", "1.5", 1), want: "max_tokens: Input should be a valid integer"},
		{name: "unknown field", body: extra(`"foo":1`), want: "foo: Extra inputs are not permitted"},
		{name: "known fields", body: extra(`"metadata":{"user_id":"u"},"service_tier":"auto","stop_sequences":["x"],"speed":"standard","inference_geo":"us","container":null`)},
		{name: "metadata of other shape", body: extra(`"metadata":5`), want: "metadata: Input should be a valid dictionary"},
		{name: "unknown metadata", body: extra(`"metadata":{"session":"s"}`), want: "metadata.session: Extra inputs are not permitted"},
		{name: "service tier", body: extra(`"service_tier":"priority"`), want: "service_tier: Input should be 'auto' or 'standard_only'"},
		{name: "geo of other type", body: extra(`"inference_geo":1`), want: "inference_geo: Input should be a valid string"},
		{name: "previous message of other type", body: extra(`"diagnostics":{"previous_message_id":5}`), want: "diagnostics.previous_message_id: Input should be a valid string"},
		{name: "no previous message", body: extra(`"diagnostics":{"previous_message_id":null}`)},
		{name: "unknown diagnostics", body: extra(`"diagnostics":{"previous_id":"msg_1"}`), want: "diagnostics.previous_id: Extra inputs are not permitted"},
		{name: "temperature, new version", body: extra(`"temperature":0.5`), want: "temperature: Extra inputs are not permitted"},
		{name: "temperature, old version", body: extra(`"temperature":0.5,"top_p":1,"top_k":2`), changes: []header{with("anthropic-version", versionOld)}},
		{name: "unknown message field", body: conversation(`{"role":"user","content":"x","id":"1"}`), want: "messages.0.id: Extra inputs are not permitted"},
		{name: "bad role", body: conversation(`{"role":"tool","content":"x"}`), want: "messages.0.role: Input should be 'user', 'assistant' or 'system'"},
		{name: "no content", body: conversation(`{"role":"user"}`), want: "messages.0.content: Field required"},
		{name: "empty content", body: conversation(user()), want: "messages.0: all messages must have non-empty content except for the optional final assistant message"},
		{name: "empty text", body: conversation(user(`{"type":"text","text":""}`)), want: "messages: text content blocks must be non-empty"},
		{name: "empty string", body: conversation(`{"role":"user","content":""}`), want: "messages: text content blocks must be non-empty"},
		{name: "blank text", body: conversation(user(`{"type":"text","text":" \n"}`)), want: "messages: text content blocks must contain non-whitespace text"},
		{name: "empty system text", body: extra(`"system":[{"type":"text","text":""}]`), want: "system: text content blocks must be non-empty"},
		{name: "unknown block field", body: conversation(user(`{"type":"text","text":"x","idx":1}`)), want: "messages.0.content.0.text.idx: Extra inputs are not permitted"},
		{name: "unknown user block", body: conversation(user(`{"type":"future_x","k":1}`)), want: "messages.0.content.0: Input tag 'future_x' found using 'type' does not match any of the expected tags"},
		{name: "unknown assistant block", body: conversation(ask + `,{"role":"assistant","content":[{"type":"future_x","k":1}]},` + ask)},
		{name: "system of other type", body: extra(`"system":[{"type":"image"}]`), want: "system.0.type: Input should be 'text'"},
		{name: "same role twice is merged", body: conversation(ask + "," + ask)},
		{name: "prefill", body: conversation(ask + `,{"role":"assistant","content":"I"}`), want: "This model does not support assistant message prefill. The conversation must end with a user message."},
		{name: "prefill on an older model", body: strings.Replace(conversation(ask+`,{"role":"assistant","content":"I"}`), "sonnet-5-5", "haiku-4-5", 1)},
		{name: "prefill with space at the end", body: strings.Replace(conversation(ask+`,{"role":"assistant","content":"I "}`), "sonnet-5-5", "haiku-4-5", 1), want: "messages: final assistant content cannot end with trailing whitespace"},

		{name: "pairs", body: conversation(ask + "," + calls + "," + user(res1, res2, note))},
		{name: "results in another order", body: conversation(ask + "," + calls + "," + user(res2, res1))},
		{name: "result missing", body: conversation(ask + "," + calls + "," + user(res1)), want: "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: t2. " + missing},
		{name: "results missing at the end", body: conversation(ask + "," + calls), want: "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: t1, t2. " + missing},
		{name: "text before results", body: conversation(ask + "," + calls + "," + user(note, res1, res2)), want: "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: t1, t2. " + missing},
		{name: "results over two messages", body: conversation(ask + "," + calls + "," + user(res1) + "," + user(res2)), want: "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: t2. " + missing},
		{name: "result without call", body: conversation(user(res1)), want: "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: t1. Each `tool_result` block must have a corresponding `tool_use` block in the previous message."},
		{name: "result of an earlier call", body: conversation(ask + "," + calls + "," + user(res1, res2) + `,{"role":"assistant","content":"ok"},` + user(res1)), want: "messages.4.content.0: unexpected `tool_use_id` found in `tool_result` blocks: t1. Each `tool_result` block must have a corresponding `tool_use` block in the previous message."},
		{name: "two results of one call", body: conversation(ask + "," + calls + "," + user(res1, res2, res1)), want: "messages.2.content.2: each tool_use must have a single result. Found multiple `tool_result` blocks with id: t1"},
		{name: "result of blocks", body: conversation(ask + "," + calls + "," + user(`{"type":"tool_result","tool_use_id":"t1","is_error":true,"content":[`+note+`,`+image+`]}`, `{"type":"tool_result","tool_use_id":"t2"}`))},
		{name: "result of a number", body: conversation(ask + "," + calls + "," + user(`{"type":"tool_result","tool_use_id":"t1","content":5}`, res2)), want: "messages.2.content.0.tool_result.content: Input should be a valid list"},
		{name: "result of strings", body: conversation(ask + "," + calls + "," + user(`{"type":"tool_result","tool_use_id":"t1","content":["a"]}`, res2)), want: "messages.2.content.0.tool_result.content.0: Input should be a valid dictionary"},
		{name: "result of a call", body: conversation(ask + "," + calls + "," + user(`{"type":"tool_result","tool_use_id":"t1","content":[{"type":"tool_use"}]}`, res2)), want: "messages.2.content.0.tool_result.content.0: Input tag 'tool_use' found using 'type' does not match any of the expected tags"},
		{name: "result of a text without text", body: conversation(ask + "," + calls + "," + user(`{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text"}]}`, res2)), want: "messages.2.content.0.tool_result.content.0.text.text: Input should be a valid string"},
		{name: "result of an image from nowhere", body: conversation(ask + "," + calls + "," + user(`{"type":"tool_result","tool_use_id":"t1","content":[{"type":"image"}]}`, res2)), want: "messages.2.content.0.tool_result.content.0.image.source: Field required"},
		{name: "result that is an error in words", body: conversation(ask + "," + calls + "," + user(`{"type":"tool_result","tool_use_id":"t1","is_error":"no"}`, res2)), want: "messages.2.content.0.tool_result.is_error: Input should be a valid boolean"},
		{name: "same call id twice", body: conversation(ask + `,{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"A","input":{}},{"type":"tool_use","id":"t1","name":"A","input":{}}]},` + user(res1)), want: "messages.1.content.1: `tool_use` ids must be unique"},
		{name: "empty call id", body: conversation(ask + `,{"role":"assistant","content":[{"type":"tool_use","id":"","name":"A","input":{}}]},` + user(res1)), want: "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"},
		{name: "call input is no object", body: conversation(ask + `,{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"A","input":"x"}]},` + user(res1)), want: "messages.1.content.0.tool_use.input: Input should be a valid dictionary"},
		{name: "call from the user", body: conversation(user(`{"type":"tool_use","id":"t1","name":"A","input":{}}`)), want: "messages.0.content.0: `tool_use` blocks can only be in `assistant` messages"},
		{name: "thinking without signature", body: conversation(ask + `,{"role":"assistant","content":[{"type":"thinking","thinking":"x"}]},` + ask), want: "messages.1.content.0.thinking.signature: Field required"},
		{name: "thinking with a foreign signature", body: conversation(ask + `,{"role":"assistant","content":[{"type":"thinking","thinking":"x","signature":"abc"},{"type":"redacted_thinking","data":"EjQB"}]},` + ask)},
		{name: "thinking with its signature", body: conversation(ask + `,{"role":"assistant","content":[{"type":"thinking","thinking":"x","signature":"` + foreseen("x") + `"}]},` + ask)},
		{name: "thinking changed", body: conversation(ask + `,{"role":"assistant","content":[{"type":"thinking","thinking":"y","signature":"` + foreseen("x") + `"}]},` + ask), want: "messages.1.content.0: Invalid `signature` in `thinking` block"},

		{name: "four marks", body: conversation(user(textMarked("a", ""), textMarked("b", ""), textMarked("c", ""), textMarked("d", "")))},
		{name: "five marks", body: `{"model":"claude-sonnet-5-5","max_tokens":1,"system":[` + textMarked("s", "") + `],"messages":[` + user(textMarked("a", ""), textMarked("b", ""), textMarked("c", ""), textMarked("d", "")) + `]}`, want: "A maximum of 4 blocks with cache_control may be provided. Found 5."},
		{name: "marks inside a result count", body: conversation(ask + "," + calls + "," + user(`{"type":"tool_result","tool_use_id":"t1",`+marked("")+`,"content":[`+textMarked("a", "")+","+textMarked("b", "")+","+textMarked("c", "")+","+textMarked("d", "")+`]}`, res2)), want: "A maximum of 4 blocks with cache_control may be provided. Found 5."},
		{name: "automatic mark", body: extra(marked(""))},
		{name: "automatic mark on top of four", body: `{"model":"claude-sonnet-5-5","max_tokens":1,` + marked("") + `,"messages":[` + user(textMarked("a", ""), textMarked("b", ""), textMarked("c", ""), textMarked("d", ""), note) + `]}`, want: "A maximum of 4 blocks with cache_control may be provided. Found 5."},
		{name: "automatic mark where one is", body: `{"model":"claude-sonnet-5-5","max_tokens":1,` + marked("") + `,"messages":[` + user(textMarked("a", ""), textMarked("b", ""), textMarked("c", ""), textMarked("d", "")) + `]}`},
		{name: "automatic mark of other ttl", body: `{"model":"claude-sonnet-5-5","max_tokens":1,` + marked("1h") + `,"messages":[` + user(textMarked("a", "5m")) + `]}`, want: `cache_control: ttl "1h" conflicts with ttl "5m" at messages.0.content.0`},
		{name: "1h after 5m", body: `{"model":"claude-sonnet-5-5","max_tokens":1,"system":[` + textMarked("s", "") + `],"messages":[` + user(textMarked("a", "1h")) + `]}`, want: "messages.0.content.0.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that blocks are processed in the following order: `tools`, `system`, `messages`."},
		{name: "1h after 5m of tools, sent first", body: `{"model":"claude-sonnet-5-5","max_tokens":1,"messages":[` + user(textMarked("a", "1h")) + `],"tools":[{"name":"A","input_schema":{"type":"object"},` + marked("5m") + `}]}`, want: "messages.0.content.0.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that blocks are processed in the following order: `tools`, `system`, `messages`."},
		{name: "5m after 1h", body: conversation(user(textMarked("a", "1h"), textMarked("b", "5m")))},
		{name: "unknown ttl", body: conversation(user(textMarked("a", "2h"))), want: "messages.0.content.0.cache_control.ttl: Input should be '5m' or '1h'"},
		{name: "unknown mark type", body: conversation(user(`{"type":"text","text":"a","cache_control":{"type":"durable"}}`)), want: "messages.0.content.0.cache_control.type: Input should be 'ephemeral'"},
		{name: "null mark", body: conversation(user(`{"type":"text","text":"a","cache_control":null}`))},
		{name: "mark on thinking", body: conversation(ask + `,{"role":"assistant","content":[{"type":"thinking","thinking":"x","signature":"abc",` + marked("") + `}]},` + ask), want: "messages.1.content.0.thinking.cache_control: Extra inputs are not permitted"},
		{name: "mark on empty text", body: conversation(user(textMarked("", ""))), want: "messages.0.content.0: cache_control cannot be set for empty text blocks"},

		{name: "tools", body: extra(`"tools":[{"name":"A","description":"d","input_schema":{"type":"object"}},{"type":"custom","name":"B","input_schema":{"type":"object"}}],"tool_choice":{"type":"auto"}`)},
		{name: "two tools of one name", body: extra(`"tools":[{"name":"A","input_schema":{"type":"object"}},{"name":"A","input_schema":{"type":"object"}}]`), want: "tools: Tool names must be unique."},
		{name: "tool name", body: extra(`"tools":[{"name":"a b","input_schema":{"type":"object"}}]`), want: "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"},
		{name: "tool without schema", body: extra(`"tools":[{"name":"A"}]`), want: "tools.0.custom.input_schema: Field required"},
		{name: "tool schema type", body: extra(`"tools":[{"name":"A","input_schema":{"type":"string"}}]`), want: "tools.0.custom.input_schema.type: Input should be 'object'"},
		{name: "forced tool", body: extra(`"tools":[{"name":"A","input_schema":{"type":"object"}}],"tool_choice":{"type":"any"}`), want: `tool_choice: type "tool" and "any" are not supported for this model`},
		{name: "forced tool on an older model", body: strings.Replace(extra(`"tools":[{"name":"A","input_schema":{"type":"object"}}],"tool_choice":{"type":"tool","name":"A"}`), "sonnet-5-5", "sonnet-5", 1)},
		{name: "tool_choice of one tool at a time", body: extra(`"tools":[{"name":"A","input_schema":{"type":"object"}}],"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`)},
		{name: "tool_choice of parallel none", body: extra(`"tools":[{"name":"A","input_schema":{"type":"object"}}],"tool_choice":{"type":"none","disable_parallel_tool_use":true}`), want: "tool_choice.none.disable_parallel_tool_use: Extra inputs are not permitted"},
		{name: "tool_choice of parallel text", body: extra(`"tools":[{"name":"A","input_schema":{"type":"object"}}],"tool_choice":{"type":"auto","disable_parallel_tool_use":"no"}`), want: "tool_choice.auto.disable_parallel_tool_use: Input should be a valid boolean"},
		{name: "tool_choice auto with a name", body: extra(`"tools":[{"name":"A","input_schema":{"type":"object"}}],"tool_choice":{"type":"auto","name":"A"}`), want: "tool_choice.auto.name: Extra inputs are not permitted"},
		{name: "tool_choice of unknown type", body: extra(`"tools":[{"name":"A","input_schema":{"type":"object"}}],"tool_choice":{"type":"best"}`), want: "tool_choice.type: Input should be 'auto', 'any', 'tool' or 'none'"},
		{name: "tool_choice without tools", body: extra(`"tool_choice":{"type":"auto"}`), want: "tool_choice may only be specified while providing tools."},

		{name: "adaptive thinking", body: extra(`"thinking":{"type":"adaptive","display":"summarized"},"output_config":{"effort":"low"}`)},
		{name: "enabled thinking", body: extra(`"thinking":{"type":"enabled","budget_tokens":2000}`), want: `"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and "output_config.effort" to control thinking behavior.`},
		{name: "disabled thinking", body: extra(`"thinking":{"type":"disabled"}`), want: `"thinking.type.disabled" is not supported for this model. Use "thinking.type.adaptive" and "output_config.effort" to control thinking behavior.`},
		{name: "budget beside adaptive thinking", body: extra(`"thinking":{"type":"adaptive","budget_tokens":2000}`), want: "thinking.adaptive.budget_tokens: Extra inputs are not permitted"},
		{name: "display of thinking between tools", body: extra(`"thinking":{"type":"between_tools","display":"omitted"}`), want: "thinking.between_tools.display: Extra inputs are not permitted"},
		{name: "format that is a number", body: extra(`"output_config":{"format":5}`), want: "output_config.format: Input should be a valid dictionary"},
		{name: "between_tools", body: extra(`"thinking":{"type":"between_tools"}`)},
		{name: "adaptive on an older model", body: strings.Replace(extra(`"thinking":{"type":"adaptive"}`), "sonnet-5-5", "haiku-4-5", 1), want: "adaptive thinking is not supported on this model"},
		{name: "budget over max_tokens", body: strings.Replace(extra(`"thinking":{"type":"enabled","budget_tokens":2000}`), "sonnet-5-5", "haiku-4-5", 1), want: "`max_tokens` must be greater than `thinking.budget_tokens`."},
		{name: "unknown effort", body: extra(`"output_config":{"effort":"huge"}`), want: "output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'"},

		{name: "system turn", body: conversation(ask + `,{"role":"system","content":"be brief"}`)},
		{name: "system turn first", body: conversation(`{"role":"system","content":"be brief"},` + ask), want: "messages.0: role 'system' must follow a user turn"},
		{name: "system turn before a user turn", body: conversation(ask + `,{"role":"system","content":"x"},` + ask), want: "messages.1: role 'system' must be the last message or be followed by an assistant turn"},
		{name: "system turn between call and result", body: conversation(ask + "," + calls + `,{"role":"system","content":"x"},` + user(res1, res2)), want: "messages.2: role 'system' must follow a user turn"},
		{name: "system turn on sonnet 5", body: strings.Replace(conversation(ask+`,{"role":"system","content":"x"}`), "sonnet-5-5", "sonnet-5", 1), want: "messages.1: role 'system' is not supported on this model"},

		{name: "cache fill", body: strings.Replace(hello, "100", "0", 1)},
		{name: "cache fill with stream", body: strings.Replace(extra(`"stream":true`), "100", "0", 1), want: "max_tokens: 0 is not supported with stream: true"},
		{name: "cache fill with a format", body: strings.Replace(extra(`"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}}`), "100", "0", 1), want: "max_tokens: 0 is not supported with output_config.format"},
		{name: "cache fill with enabled thinking", body: strings.NewReplacer("100", "0", "sonnet-5-5", "haiku-4-5").Replace(extra(`"thinking":{"type":"enabled","budget_tokens":2000}`)), want: `max_tokens: 0 is not supported with thinking.type "enabled"`},
		{name: "cache fill with a forced tool", body: strings.NewReplacer("100", "0", "sonnet-5-5", "sonnet-5").Replace(extra(`"tools":[{"name":"A","input_schema":{"type":"object"}}],"tool_choice":{"type":"any"}`)), want: `max_tokens: 0 is not supported with tool_choice type "any"`},
		{name: "cache fill with adaptive thinking", body: strings.Replace(extra(`"thinking":{"type":"adaptive"}`), "100", "0", 1)},

		{name: "server tool left open", body: conversation(ask + "," + searching + "," + user(note)), want: "messages.1: `web_search` tool use with id `srvtoolu_1` was found without a corresponding `web_search_tool_result` block"},
		{name: "server tool answered", body: conversation(ask + `,{"role":"assistant","content":[` + search + `,{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}]},` + user(note))},
		{name: "server tool open beside a call that is answered", body: conversation(ask + `,{"role":"assistant","content":[` + search + `,{"type":"tool_use","id":"t1","name":"A","input":{}}]},` + user(res1))},
		{name: "server tool open beside a call, and a text", body: conversation(ask + `,{"role":"assistant","content":[` + search + `,{"type":"tool_use","id":"t1","name":"A","input":{}}]},` + user(res1, note)), want: "messages.1: `web_search` tool use with id `srvtoolu_1` was found without a corresponding `web_search_tool_result` block"},
		{name: "paused turn sent back", body: conversation(ask + "," + searching)},

		{name: "too many messages", body: conversation(strings.Repeat(ask+",", 100_000) + ask), want: "messages: List should have at most 100000 items"},
		{name: "image from nowhere", body: conversation(user(`{"type":"image"}`)), want: "messages.0.content.0.image.source: Field required"},
		{name: "image by name", body: conversation(user(`{"type":"image","source":"cat.png"}`)), want: "messages.0.content.0.image.source: Input should be a valid dictionary"},
		{name: "image of unknown kind", body: conversation(user(strings.Replace(image, "png", "bmp", 1))), want: "messages.0.content.0.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"},
		{name: "image by address", body: conversation(user(`{"type":"image","source":{"type":"url","url":"https://example.com/cat.png"}}`))},
		{name: "document from nowhere", body: conversation(user(`{"type":"document"}`)), want: "messages.0.content.0.document.source: Field required"},
		{name: "600 images", body: conversation(user(slices.Repeat([]string{image}, 600)...))},
		{name: "601 images", body: conversation(user(slices.Repeat([]string{image}, 601)...)), want: "messages: 601 images exceed the limit of 600 for claude-sonnet-5-5"},
		{name: "101 images for a short window, in results", body: strings.Replace(conversation(ask+","+calls+","+user(`{"type":"tool_result","tool_use_id":"t1","content":[`+strings.Repeat(image+",", 99)+image+`]}`, res2, image)), "sonnet-5-5", "haiku-4-5", 1), want: "messages: 101 images exceed the limit of 100 for claude-haiku-4-5"},

		{name: "effort on a model without", body: strings.Replace(extra(`"output_config":{"effort":"low"}`), "sonnet-5-5", "haiku-4-5", 1), want: "output_config.effort: This model does not support the effort parameter."},
		{name: "small budget", body: strings.NewReplacer("sonnet-5-5", "haiku-4-5").Replace(extra(`"thinking":{"type":"enabled","budget_tokens":1023}`)), want: "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"},
		{name: "budget of other type", body: strings.NewReplacer("sonnet-5-5", "haiku-4-5").Replace(extra(`"thinking":{"type":"enabled","budget_tokens":"2000"}`)), want: "thinking.enabled.budget_tokens: Input should be a valid integer"},
		{name: "no budget", body: strings.NewReplacer("sonnet-5-5", "haiku-4-5").Replace(extra(`"thinking":{"type":"enabled"}`)), want: "thinking.enabled.budget_tokens: Field required"},
		{name: "disabled at high effort", body: strings.Replace(extra(`"thinking":{"type":"disabled"},"output_config":{"effort":"high"}`), "sonnet-5-5", "opus-5", 1)},
		{name: "disabled at more effort", body: strings.Replace(extra(`"thinking":{"type":"disabled"},"output_config":{"effort":"xhigh"}`), "sonnet-5-5", "opus-5", 1), want: `"thinking.type.disabled" is not supported for this model at effort "xhigh".`},
		{name: "too long", body: strings.Replace(strings.Replace(hello, "hello", strings.Repeat("abcd", 200_000), 1), "sonnet-5-5", "haiku-4-5", 1), want: "prompt is too long: 200007 tokens > 200000 maximum"},
		{name: "document from the assistant", body: conversation(ask + `,{"role":"assistant","content":[{"type":"document"}]},` + ask), want: "messages.1.content.0: `document` blocks are not permitted in assistant messages"},
		{name: "document from the assistant, old version", body: conversation(ask + `,{"role":"assistant","content":[{"type":"document"}]},` + ask), changes: []header{with("anthropic-version", versionOld)}},
		{name: "citations from the user", body: conversation(user(`{"type":"text","text":"x","citations":[{}]}`)), want: "messages.0.content.0.text.citations: `citations` must be empty in user messages"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sim := New(Options{Mind: say(TextBlock("fine"))})
			w := direct(sim, tc.body, tc.changes...)
			if tc.want == "" {
				if w.Code != http.StatusOK {
					t.Fatalf("refused: %d %s", w.Code, w.Body)
				}
				return
			}
			e := errorOf(t, w.Body.Bytes())
			if w.Code != http.StatusBadRequest || e.Error.Type != "invalid_request_error" || e.Error.Message != tc.want {
				t.Errorf("got  %d %s: %s\nwant %s", w.Code, e.Error.Type, e.Error.Message, tc.want)
			}
			if n := len(sim.CacheEntries()); n != 0 {
				t.Errorf("a refused request wrote %d entries", n)
			}
		})
	}
}
