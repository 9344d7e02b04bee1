// Entries until transcript.go draws them: whoever brings that deletes this file.
package web

import (
	"fmt"
	"time"

	"github.com/a-h/templ"

	"forkyard/forkcore"
)

type entryView struct {
	ID, Key, text string
	At            time.Time
}

func newEntries(lines []forkcore.TranscriptLine, _ map[string]forkcore.Run) (l []entryView) {
	for _, x := range lines {
		if x.Kind == forkcore.EntryMessage {
			l = append(l, entryView{ID: fmt.Sprint("e-", x.Seq), Key: "x", text: shorten(string(x.Message), 300), At: x.At})
		}
	}
	return l
}

func raw(v entryView) templ.Component {
	return templ.Raw(`<div class="entry" id="` + v.ID + `">` + templ.EscapeString(v.text) + `</div>`)
}
func entryItem(v entryView) templ.Component { return raw(v) }
func draftItem(id string, d draft) templ.Component {
	return templ.Raw(`<div class="entry" id="draft">` + templ.EscapeString(fmt.Sprint(d.Blocks)) + `</div>`)
}
