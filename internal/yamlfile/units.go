package yamlfile

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/duration"
)

// Bytes is a number of bytes, written as 512MiB.
type Bytes int64

// UnmarshalYAML implements yaml.Unmarshaler.
func (b *Bytes) UnmarshalYAML(n *yaml.Node) (err error) {
	*b, err = ParseBytes(n.Value)
	return err
}

// ParseBytes reads a number of bytes such as 1048576, 512MiB or 10GiB, at least 1. Errors: of what is none.
func ParseBytes(text string) (Bytes, error) {
	number, unit := text, int64(1)
	for i, name := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if cut, ok := strings.CutSuffix(text, name); ok {
			number, unit = strings.TrimSpace(cut), 1<<(10*(i+1))
		}
	}
	v, err := strconv.ParseInt(number, 10, 64)
	if err != nil || v <= 0 || v > math.MaxInt64/unit {
		return 0, fmt.Errorf("must be a number of bytes such as 1048576, 512MiB or 10GiB, is %q", text)
	}
	return Bytes(v * unit), nil
}

// Duration is a time.Duration written as 1m30s, or as 30d.
type Duration time.Duration

// UnmarshalYAML implements yaml.Unmarshaler.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	if n.Value == "none" {
		*d = Duration(harp.NoLimit)
		return nil
	}
	v, err := duration.Parse(n.Value)
	if err != nil || v <= 0 {
		return fmt.Errorf("must be %s, is %q", duration.Expected, n.Value)
	}
	*d = Duration(v)
	return nil
}
