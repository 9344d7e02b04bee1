package sse

import "testing"

func TestParseID(t *testing.T) {
	tests := []struct {
		in   string
		want ID
		ok   bool
	}{
		{"0", ID{}, true},
		{"0-0", ID{}, true},
		{"1732000000000-12", ID{1732000000000, 12}, true},
		{"1732000000000", ID{1732000000000, 0}, true},
		{"18446744073709551615-1", ID{18446744073709551615, 1}, true},
		{"18446744073709551616-1", ID{}, false},
		{"", ID{}, false},
		{"-", ID{}, false},
		{"-1", ID{}, false},
		{"1-", ID{}, false},
		{"+1-0", ID{}, false},
		{"1-2-3", ID{}, false},
		{"1- 2", ID{}, false},
		{"$", ID{}, false},
		{"abc", ID{}, false},
		{"1-0\n", ID{}, false},
	}
	for _, test := range tests {
		t.Run(test.in, func(t *testing.T) {
			got, err := ParseID(test.in)
			if (err == nil) != test.ok || got != test.want {
				t.Errorf("ParseID(%q) = %v, %v; want %v, ok %t", test.in, got, err, test.want, test.ok)
			}
		})
	}
}

func TestCompareIDIsNumeric(t *testing.T) {
	ordered := []string{"0-0", "0-1", "9-0", "9-9", "9-10", "10-0", "10-2", "100-1"}
	for i, a := range ordered {
		for j, b := range ordered {
			x, errX := ParseID(a)
			y, errY := ParseID(b)
			if errX != nil || errY != nil {
				t.Fatal(errX, errY)
			}
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got := x.Compare(y); got != want {
				t.Errorf("%s compared with %s is %d, want %d", a, b, got, want)
			}
		}
	}
}

func FuzzParseID(f *testing.F) {
	for _, s := range []string{"0", "1-2", "18446744073709551615-3", "x", "1-"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseID(s)
		if err != nil {
			return
		}
		again, err := ParseID(id.String())
		if err != nil || again != id {
			t.Errorf("%q reads as %v, written and read again as %v, %v", s, id, again, err)
		}
	})
}
