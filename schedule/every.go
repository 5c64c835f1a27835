package schedule

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"strings"
	"time"

	"github.com/harpcaller/harp/internal/duration"
)

// interval is the source of "every": moments by elapsed time from a beginning on.
type interval struct {
	begin time.Time
	each  time.Duration
}

func parseInterval(text string, rules Rules) (source, error) {
	each, err := duration.Parse(strings.TrimSpace(text))
	switch {
	case err != nil:
		return nil, cronError("", "every must be followed by %s", duration.Expected)
	case each < time.Second:
		return nil, cronError("", "every %s: must be one second or more", strings.TrimSpace(text))
	case rules.Gap != GapByExpression:
		return nil, &FieldError{Field: "gap", Message: "every knows no wall clock"}
	case rules.Repeat != RepeatByExpression:
		return nil, &FieldError{Field: "repeat", Message: "every knows no wall clock"}
	}
	begin := rules.From
	if begin.IsZero() {
		begin = time.Unix(0, 0)
	}
	return interval{begin, each}, nil
}

func (i interval) next(after time.Time) (fire, bool) {
	elapsed := after.Sub(i.begin)
	if !i.begin.Add(elapsed).Equal(after) {
		return fire{}, false // farther away than a duration can say
	}
	n := elapsed / i.each
	if elapsed%i.each >= 0 {
		n++
	}
	at := i.begin.Add(n * i.each)
	return fire{at: at}, at.After(after)
}

// jitter returns the part of the longest delay by which a schedule fires late: what SHA-256 of its
// name, a zero byte and the nominal time in nanoseconds since 1970 begins with, as a fraction of one, in whole milliseconds.
func jitter(name string, nominal time.Time, longest time.Duration) time.Duration {
	if longest <= 0 {
		return 0
	}
	text := append([]byte(name), 0)
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(text, uint64(nominal.UnixNano())))
	part, _ := bits.Mul64(binary.BigEndian.Uint64(sum[:]), uint64(longest))
	return time.Duration(part).Truncate(time.Millisecond)
}
