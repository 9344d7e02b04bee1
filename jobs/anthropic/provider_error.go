package anthropic

import (
	"bytes"
	"cmp"
	"html"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// providerError is what an error answer says, in whatever form it came.
type providerError struct {
	kind    string // error.type
	code    string // error_code of the details, or the code of other servers
	message string
	status  int  // that the body names; 0 = none
	page    bool // it was a page for people, from whatever answers there or stands between
}

// parseProviderError reads an error body or the data of an error event. The forms: the API's own
// {"error":{"type","message","details"}}; OpenAI's with "code" (vLLM, SGLang, LM Studio, llama.cpp, where the object may
// also stand alone); OpenRouter's with a number as code and the cause in metadata; {"error":"text"}; {"detail":…} of
// FastAPI, a text or a list of {"loc","msg"}; {"message":…}; plain text; a page of a proxy.
func parseProviderError(contentType string, body []byte) providerError {
	body = bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")))
	if !validJSON(body) {
		kind, _, _ := mime.ParseMediaType(contentType)
		if kind == "text/html" || bytes.HasPrefix(body, []byte("<")) {
			return providerError{message: pageText(string(body)), page: true}
		}
		return providerError{message: strings.TrimSpace(string(body))}
	}
	var p providerError
	read := func(obj []byte) {
		p.kind = cmp.Or(p.kind, decodeString(member(obj, "type")))
		p.message = cmp.Or(p.message, decodeString(member(obj, "message")), decodeString(member(obj, "msg")))
		p.code = cmp.Or(p.code, decodeString(member(member(obj, "details"), "error_code")))
		code := member(obj, "code")
		p.code = cmp.Or(p.code, decodeString(code))
		var n int64
		if text := cmp.Or(decodeString(code), string(code)); setCount(&n, []byte(text)) && n >= 400 && n <= 599 {
			p.status = int(n)
		}
	}
	switch e := member(body, "error"); {
	case len(e) > 0 && e[0] == '{':
		read(e)
		if raw := decodeString(member(member(e, "metadata"), "raw")); raw != "" {
			p.message = strings.TrimSpace(p.message + ": " + raw)
		}
	case len(e) > 0 && e[0] == '"':
		p.message = decodeString(e)
		p.code = decodeString(member(body, "code"))
	default:
		read(body)
		if p.kind == "error" {
			p.kind = ""
		}
	}
	if p.message == "" {
		p.message = detailText(member(body, "detail"))
	}
	if _, err := strconv.Atoi(p.code); err == nil {
		p.code = "" // a status, read above
	}
	if p.message == "" && len(body) > 0 && body[0] != '{' {
		p.message = cmp.Or(decodeString(body), string(body))
	}
	if p.message == "" {
		p.message = string(body)
	}
	return p
}

// detailText reads what FastAPI has in detail.
func detailText(value []byte) string {
	if len(value) == 0 {
		return ""
	}
	switch value[0] {
	case '"':
		return decodeString(value)
	case '{':
		return cmp.Or(decodeString(member(value, "message")), decodeString(member(value, "error")), string(value))
	case '[':
		var texts []string
		for item := range elements(value) {
			var loc []string
			for part := range elements(member(item, "loc")) {
				loc = append(loc, cmp.Or(decodeString(part), string(part)))
			}
			if msg := decodeString(member(item, "msg")); msg != "" {
				texts = append(texts, strings.TrimPrefix(strings.Join(loc, ".")+": "+msg, ": "))
			}
		}
		return strings.Join(texts, "; ")
	}
	return ""
}

// pageText is the title of a web page, or what it shows.
func pageText(page string) string {
	lower := strings.ToLower(page)
	if from := strings.Index(lower, "<title"); from >= 0 && len(lower) == len(page) {
		if open := strings.IndexByte(page[from:], '>'); open >= 0 {
			from += open + 1
			if to := strings.Index(lower[from:], "</title"); to >= 0 {
				if title := strings.Join(strings.Fields(html.UnescapeString(page[from:from+to])), " "); title != "" {
					return title
				}
			}
		}
	}
	var text strings.Builder
	for page != "" {
		before, rest, _ := strings.Cut(page, "<")
		text.WriteString(before + " ")
		_, page, _ = strings.Cut(rest, ">")
	}
	return strings.Join(strings.Fields(html.UnescapeString(text.String())), " ")
}

// keyIsSpent recognises the codes of other servers for an account that can pay for nothing. Sources: OpenAI's error
// codes, insufficient_quota; LiteLLM, litellm/proxy/_types.py, ProxyErrorTypes.budget_exceeded.
func (p providerError) keyIsSpent() bool {
	return p.code == "insufficient_quota" || p.kind == "insufficient_quota" || p.kind == "budget_exceeded"
}

// statusIn gives the HTTP status for an error inside a stream: that of its type, that which it names, or a server error.
func (p providerError) statusIn() int {
	if s := statusOf(p.kind); s != http.StatusInternalServerError || p.kind == "api_error" || p.status == 0 {
		return s
	}
	return p.status
}
