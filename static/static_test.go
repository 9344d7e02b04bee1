package static

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
)

func sample(t *testing.T, css string) files {
	t.Helper()
	f, err := newFiles(fstest.MapFS{
		"app.css":          {Data: []byte(css)},
		"dist/.gitkeep":    {},
		"dist/htmx.min.js": {Data: []byte("let htmx")},
		"favicon.svg":      {Data: []byte("<svg/>")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestServe(t *testing.T) {
	f := sample(t, "body{}")
	const forAYear, revalidated = "public, max-age=31536000, immutable", "no-cache"
	tests := []struct {
		name, method, path string
		status             int
		contentType, cache string
		body               string
	}{
		{"style sheet", "GET", f.url("app.css"), 200, "text/css; charset=utf-8", forAYear, "body{}"},
		{"script of dist", "GET", f.url("htmx.min.js"), 200, "text/javascript; charset=utf-8", forAYear, "let htmx"},
		{"icon", "GET", f.url("favicon.svg"), 200, "image/svg+xml", forAYear, "<svg/>"},
		{"head", "HEAD", f.url("app.css"), 200, "text/css; charset=utf-8", forAYear, ""},
		{"hash of another version", "GET", "/static/0123456789abcdef/app.css", 200, "text/css; charset=utf-8", revalidated, "body{}"},
		{"unknown name", "GET", f.url("gone.js"), 404, "", "", ""},
		{"hidden file", "GET", f.url(".gitkeep"), 404, "", "", ""},
		{"name without hash", "GET", "/static/app.css", 404, "", "", ""},
		{"path inside dist", "GET", "/static/x/dist/htmx.min.js", 404, "", "", ""},
		{"outside", "GET", "/other/x/app.css", 404, "", "", ""},
		{"listing", "GET", "/static/", 404, "", "", ""},
		{"write", "POST", f.url("app.css"), 405, "", "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			recorder := httptest.NewRecorder()
			f.ServeHTTP(recorder, httptest.NewRequest(test.method, test.path, nil))
			if recorder.Code != test.status {
				t.Fatalf("%s %s: status %d, want %d", test.method, test.path, recorder.Code, test.status)
			}
			if got := recorder.Header().Get("Cache-Control"); got != test.cache {
				t.Errorf("Cache-Control %q, want %q", got, test.cache)
			}
			if test.status != http.StatusOK {
				return
			}
			if got := recorder.Header().Get("Content-Type"); got != test.contentType {
				t.Errorf("Content-Type %q, want %q", got, test.contentType)
			}
			if got := recorder.Body.String(); got != test.body {
				t.Errorf("body %q, want %q", got, test.body)
			}
		})
	}
}

func TestServeUnchanged(t *testing.T) {
	f := sample(t, "body{}")
	request := httptest.NewRequest("GET", f.url("app.css"), nil)
	request.Header.Set("If-None-Match", `"`+f["app.css"].hash+`"`)
	recorder := httptest.NewRecorder()
	f.ServeHTTP(recorder, request)
	if recorder.Code != http.StatusNotModified {
		t.Errorf("status %d, want 304 for the ETag that the file has", recorder.Code)
	}
}

func TestURLFollowsContent(t *testing.T) {
	before, same, after := sample(t, "a{}"), sample(t, "a{}"), sample(t, "b{}")
	if before.url("app.css") != same.url("app.css") {
		t.Errorf("equal content has the URLs %s and %s", before.url("app.css"), same.url("app.css"))
	}
	if before.url("app.css") == after.url("app.css") {
		t.Errorf("changed content keeps its URL %s, so browsers would keep the old file for a year", after.url("app.css"))
	}
	if got, want := before.url("gone.js"), "/static/missing/gone.js"; got != want {
		t.Errorf("URL of an unknown name: %s, want %s", got, want)
	}
}

func TestNewFilesRefuses(t *testing.T) {
	tests := []struct {
		name string
		fsys fstest.MapFS
		want string
	}{
		{"two of one name", fstest.MapFS{"app.js": {}, "dist/app.js": {}}, `two static files are called "app.js"`},
		{"unknown type", fstest.MapFS{"dist/page.wasm": {}}, `"page.wasm" has no known content type`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := newFiles(test.fsys)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one that says %s", err, test.want)
			}
		})
	}
}

func TestEmbedded(t *testing.T) {
	server := httptest.NewServer(Handler())
	defer server.Close()
	for _, name := range []string{"app.css", "app.js", "favicon.svg"} {
		response, err := http.Get(server.URL + URL(name))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if closeErr := response.Body.Close(); err == nil {
			err = closeErr
		}
		if err != nil || response.StatusCode != http.StatusOK || len(body) == 0 {
			t.Errorf("GET %s: status %d, %d bytes, error %v", URL(name), response.StatusCode, len(body), err)
		}
	}
}

// The policy of the pages is script-src 'self' and style-src 'self': nothing may come from elsewhere.
func TestStyleSheetIsSelfContained(t *testing.T) {
	css, err := embedded.ReadFile("app.css")
	if err != nil {
		t.Fatal(err)
	}
	for _, outside := range []string{"@import", "http://", "https://", "//"} {
		if strings.Contains(string(css), outside) {
			t.Errorf("app.css contains %q, but may load nothing", outside)
		}
	}
	for _, state := range []string{"queued", "running", "parked", "waiting", "done", "failed", "cancelled", "over_budget"} {
		if !strings.Contains(string(css), `[data-state="`+state+`"]`) {
			t.Errorf("app.css has no badge for a run that is %s", state)
		}
	}
}
