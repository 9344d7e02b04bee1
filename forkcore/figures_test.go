package forkcore

import "testing"

func TestDollars(t *testing.T) {
	for nano, want := range map[int64]string{
		0: "$0.0000", 1: "< $0.0001", 49_999: "< $0.0001", 50_000: "$0.0001", 149_999: "$0.0001", 150_000: "$0.0002", -1: "−< $0.0001",
		24_000_000: "$0.0240", 1_000_000_000: "$1.0000", 12_345_678_900: "$12.3457", -1_500_000_000: "−$1.5000",
	} {
		if got := Dollars(nano); got != want {
			t.Errorf("Dollars(%d) = %q, want %q", nano, got, want)
		}
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -999: "-999", -1000: "-1,000", 1_234_567: "1,234,567", -123_456: "-123,456"} {
		if got := Grouped(n); got != want {
			t.Errorf("Grouped(%d) = %q, want %q", n, got, want)
		}
	}
	if got := tokensText(1) + ", " + tokensText(2000); got != "1 token, 2,000 tokens" {
		t.Error(got)
	}
}

func TestBasisPoints(t *testing.T) {
	tests := []struct{ part, whole, want int64 }{
		{1, 2, 5000}, {1, 3, 3333}, {2, 3, 6667}, {-2, 3, -6667}, {1, 20_000, 1}, {1, 20_001, 0}, {-1, 20_000, -1}, {1, 0, 0}, {1, -1, 0}, {3, 1, 30_000}, {0, 5, 0}, {7, 1, 70_000},
	}
	for _, tt := range tests {
		if got := BasisPoints(tt.part, tt.whole); got != tt.want {
			t.Errorf("BasisPoints(%d, %d) = %d, want %d", tt.part, tt.whole, got, tt.want)
		}
	}
	for points, want := range map[int64]string{0: "0 %", 1: "0.01 %", 10: "0.1 %", 9975: "99.75 %", 9000: "90 %", -7170: "−71.7 %", 10_005: "100.05 %"} {
		if got := PercentText(points); got != want {
			t.Errorf("PercentText(%d) = %q, want %q", points, got, want)
		}
	}
}
