package anthropic

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMembers(t *testing.T) {
	type kv struct{ K, V string }
	for _, tt := range []struct {
		in   string
		want []kv
	}{
		{`{}`, nil},
		{` { } `, nil},
		{`[1]`, nil},
		{`"x"`, nil},
		{`{"a":1}`, []kv{{"a", "1"}}},
		{" {\"a\" :\t1.0 ,\n\"b\":\"}\\\"\" , \"c\\u0041\":[ {\"x\":\"]\"} ,2]}", []kv{{"a", "1.0"}, {"b", `"}\""`}, {"cA", `[ {"x":"]"} ,2]`}}},
		{`{"a":null,"a":true,"":{"b":{}}}`, []kv{{"a", "null"}, {"a", "true"}, {"", `{"b":{}}`}}},
		{`{"a":"\\","b":-1e2}`, []kv{{"a", `"\\"`}, {"b", "-1e2"}}},
	} {
		if !json.Valid([]byte(tt.in)) {
			t.Fatalf("%s is not valid", tt.in)
		}
		var got []kv
		for k, v := range members([]byte(tt.in)) {
			got = append(got, kv{k, string(v)})
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.in, diff)
		}
	}
}

// FuzzMembers compares with the decoder of the standard library.
func FuzzMembers(f *testing.F) {
	f.Add([]byte(` {"a" : [1,{"b":"]\""}] ,"c\ud83d\ude42":"x" , "a":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var want map[string]json.RawMessage
		if json.Unmarshal(b, &want) != nil {
			return
		}
		got := map[string]json.RawMessage{}
		for k, v := range members(b) {
			got[k] = v
		}
		if len(want) == 0 {
			want = map[string]json.RawMessage{}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", b, diff)
		}
	})
}

// FuzzDecodeString: the value of a string is what encoding/json makes of it.
func FuzzDecodeString(f *testing.F) {
	for _, s := range []string{`"a"`, `"\ud83d\ude42"`, `"\ud83d"`, `"\ud83d\u0041"`, `"\ude42\ud83d\ude42"`, `"\"\\\/\b\f\n\r\t"`, "\"\xff\xe5\xa5\"", `"\ud83dx"`, `"\ud83d\n"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, lit string) {
		var want string
		if !json.Valid([]byte(lit)) || lit[0] != '"' || lit[len(lit)-1] != '"' || json.Unmarshal([]byte(lit), &want) != nil {
			return
		}
		if got := decodeString([]byte(lit)); got != want {
			t.Fatalf("%q: %q, want %q", lit, got, want)
		}
	})
}
