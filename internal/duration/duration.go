// Package duration reads and writes durations as people write them.
package duration

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Expected says in an error what was expected: "must be " + Expected.
const Expected = "a duration such as 5s or 1h30m"

// Parse reads a duration as time.ParseDuration does, or a whole number of days or weeks as 30d
// or 1w. A number without a unit is refused, except 0. Errors: that it is none.
func Parse(text string) (time.Duration, error) {
	const day = 24 * time.Hour
	unit := day
	number, ok := strings.CutSuffix(text, "d")
	if !ok {
		unit = 7 * day
		number, ok = strings.CutSuffix(text, "w")
	}
	if !ok {
		return time.ParseDuration(text)
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n > maxDays*int64(day)/int64(unit) || n < -maxDays*int64(day)/int64(unit) {
		return 0, fmt.Errorf("%q is not a number of days or weeks", text)
	}
	return time.Duration(n) * unit, nil
}

// maxDays is the longest duration in days: about 90 years.
const maxDays = 1<<15 - 1

// Format writes a duration without the units of which there are none: 1h, not 1h0m0s.
func Format(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
