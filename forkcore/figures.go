package forkcore

import (
	"fmt"
	"strconv"
)

// Dollars writes nano-dollars for people, in ten-thousandths of a dollar:
// "$0.0240", "< $0.0001" for less than half of one, "−$1.0000".
func Dollars(nanoUSD int64) string {
	const unit = 100_000 // a ten-thousandth of a dollar
	n, sign := nanoUSD, ""
	if n < 0 {
		sign, n = "−", -n
	}
	tenThousandths := (n + unit/2) / unit
	if n > 0 && tenThousandths == 0 {
		return sign + "< $0.0001"
	}
	return fmt.Sprintf("%s$%d.%04d", sign, tenThousandths/10_000, tenThousandths%10_000)
}

// Grouped writes an integer with a comma before every third digit.
func Grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// BasisPoints is part of whole in hundredths of a percent, rounded half away
// from zero; 0 without a whole.
func BasisPoints(part, whole int64) int64 {
	if whole <= 0 {
		return 0
	}
	if part < 0 {
		return -BasisPoints(-part, whole)
	}
	return (20_000*part + whole) / (2 * whole)
}

// PercentText writes basis points with two decimals, trailing zeros cut: "99.75 %", "90 %".
func PercentText(basisPoints int64) string {
	sign := ""
	if basisPoints < 0 {
		sign, basisPoints = "−", -basisPoints
	}
	switch {
	case basisPoints%100 == 0:
		return fmt.Sprintf("%s%d %%", sign, basisPoints/100)
	case basisPoints%10 == 0:
		return fmt.Sprintf("%s%d.%d %%", sign, basisPoints/100, basisPoints/10%10)
	}
	return fmt.Sprintf("%s%d.%02d %%", sign, basisPoints/100, basisPoints%100)
}

// tokensText counts tokens in words.
func tokensText(n int64) string {
	if n == 1 {
		return "1 token"
	}
	return Grouped(n) + " tokens"
}
