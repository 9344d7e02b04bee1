package forkcore

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestDigestForms(t *testing.T) {
	// The SHA-256 of "abc" from FIPS 180-2, appendix B.1.
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	d := DigestOf([]byte("abc"))
	if d.String() != abc {
		t.Errorf("DigestOf(abc) = %s, want %s", d, abc)
	}
	if got, err := ParseDigest(abc); err != nil || got != d {
		t.Errorf("ParseDigest = %s, %v", got, err)
	}
	b, err := json.Marshal(map[Digest]Digest{d: d})
	if want := `{"` + abc + `":"` + abc + `"}`; err != nil || string(b) != want {
		t.Errorf("JSON is %s, %v; want %s", b, err, want)
	}
	var back map[Digest]Digest
	if err := json.Unmarshal(b, &back); err != nil || back[d] != d {
		t.Errorf("from JSON: %v, %v", back, err)
	}
	if d.IsZero() || !(Digest{}).IsZero() {
		t.Error("IsZero is wrong")
	}
}

func TestParseDigestRefuses(t *testing.T) {
	good := DigestOf(nil).String()
	for _, tt := range []struct{ name, in, why string }{
		{"empty", "", "0 characters, want 64"},
		{"short", good[1:], "63 characters, want 64"},
		{"long", good + "0", "65 characters, want 64"},
		{"a byte too long", good + "00", "66 characters, want 64"},
		{"no hex", "g" + good[1:], "invalid byte: U+0067 'g'"},
		{"upper case", strings.ToUpper(good), "upper-case digits"},
		{"white space", " " + good[1:], "invalid byte: U+0020 ' '"},
	} {
		if d, err := ParseDigest(tt.in); !errors.Is(err, ErrBadDigest) || !d.IsZero() || !strings.HasSuffix(err.Error(), tt.why) {
			t.Errorf("%s: ParseDigest(%q) = %s, %v; want ErrBadDigest, %s", tt.name, tt.in, d, err, tt.why)
		}
	}
	d := DigestOf([]byte("kept"))
	if err := d.UnmarshalText([]byte("x")); !errors.Is(err, ErrBadDigest) || d != DigestOf([]byte("kept")) {
		t.Errorf("UnmarshalText of a bad text: %v, digest now %s", err, d)
	}
}
