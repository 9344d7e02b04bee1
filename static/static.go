// Package static holds what browsers load besides pages: the style sheet, the script, the icon and the
// libraries that the build copies into dist/. All of it is embedded into the program.
//
// Every file is served under the hash of its content, /static/<hash>/<name>, and may be cached for a year:
// a changed file has a changed URL.
package static

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

// dist is embedded with its hidden files, because in a fresh clone .gitkeep is all that it holds
// and an embed pattern without a match does not compile.
//
//go:embed *.css *.js favicon.svg all:dist
var embedded embed.FS

// root is where the files are served.
const root = "/static/"

// hashLength is the number of hexadecimal digits in a URL: 64 bits, plenty to tell versions of one file apart.
const hashLength = 16

// embeddedFiles reads the embedded files once. They are part of the program, so failing to read them is
// an error of the build and panics.
var embeddedFiles = sync.OnceValue(func() files {
	f, err := newFiles(embedded)
	if err != nil {
		panic(err)
	}
	return f
})

// Handler serves the embedded files. It expects the whole path, prefix /static/ included. An unknown name is
// a 404; a known name under another hash, which happens while two versions of the program are up,
// gets the present content without permission to cache it.
func Handler() http.Handler { return embeddedFiles() }

// URL returns the path of an embedded file by its base name, such as "app.css" or "htmx.min.js":
// /static/<hash>/<name>. The path of a name that is not embedded, as before `make assets`, answers 404.
func URL(name string) string { return embeddedFiles().url(name) }

type file struct {
	content     []byte
	contentType string
	hash        string
}

// files maps base names to files.
type files map[string]file

// newFiles reads every file below fsys that is not hidden. Two files of one base name are an error.
func newFiles(fsys fs.FS) (files, error) {
	found := files{}
	err := fs.WalkDir(fsys, ".", func(p string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := path.Base(p)
		if entry.IsDir() || strings.HasPrefix(name, ".") {
			return nil
		}
		if _, twice := found[name]; twice {
			return fmt.Errorf("two static files are called %q", name)
		}
		content, err := fs.ReadFile(fsys, p)
		if err != nil {
			return fmt.Errorf("reading static file %s: %w", p, err)
		}
		kind, err := contentType(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		found[name] = file{content: content, contentType: kind, hash: hex.EncodeToString(sum[:])[:hashLength]}
		return nil
	})
	return found, err
}

// contentType is a table of its own because mime.TypeByExtension reads the tables of the machine,
// some of which call a script text/plain, and browsers then refuse to run it.
func contentType(name string) (string, error) {
	switch path.Ext(name) {
	case ".css":
		return "text/css; charset=utf-8", nil
	case ".js":
		return "text/javascript; charset=utf-8", nil
	case ".svg":
		return "image/svg+xml", nil
	default:
		return "", fmt.Errorf("static file %q has no known content type; add its extension", name)
	}
}

func (f files) url(name string) string {
	hash := f[name].hash
	if hash == "" {
		hash = "missing"
	}
	return root + hash + "/" + name
}

// ServeHTTP answers GET and HEAD of /static/<hash>/<name>.
func (f files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "static files can only be read", http.StatusMethodNotAllowed)
		return
	}
	rest, below := strings.CutPrefix(r.URL.Path, root)
	hash, name, named := strings.Cut(rest, "/")
	found, known := f[name]
	if !below || !named || !known {
		http.NotFound(w, r)
		return
	}
	header := w.Header()
	header.Set("Content-Type", found.contentType)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("ETag", `"`+found.hash+`"`)
	if hash == found.hash {
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	} else {
		header.Set("Cache-Control", "no-cache")
	}
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(found.content))
}
