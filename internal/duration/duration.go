// Package duration reads durations as people write them.
package duration

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Expected says in an error what was expected: "must be " + Expected.
const Expected = "a duration such as 5s or 1h30m"

// Parse reads a duration as time.ParseDuration does, or a whole number of days as 30d. A
// number without a unit is refused, except 0. Errors: that it is none.
func Parse(text string) (time.Duration, error) {
	days, ok := strings.CutSuffix(text, "d")
	if !ok {
		return time.ParseDuration(text)
	}
	n, err := strconv.ParseInt(days, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q is no number of days", text)
	}
	return time.Duration(n) * 24 * time.Hour, nil
}
