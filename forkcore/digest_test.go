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
	for name, s := range map[string]string{
		"empty": "", "short": good[1:], "long": good + "0", "no hex": "g" + good[1:],
		"upper case": strings.ToUpper(good), "white space": " " + good[1:],
	} {
		if d, err := ParseDigest(s); !errors.Is(err, ErrBadDigest) || !d.IsZero() {
			t.Errorf("%s: ParseDigest(%q) = %s, %v; want ErrBadDigest", name, s, d, err)
		}
	}
	d := DigestOf([]byte("kept"))
	if err := d.UnmarshalText([]byte("x")); !errors.Is(err, ErrBadDigest) || d != DigestOf([]byte("kept")) {
		t.Errorf("UnmarshalText of a bad text: %v, digest now %s", err, d)
	}
}
