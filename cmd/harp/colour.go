package main

import (
	"errors"
	"io"
	"strings"

	"github.com/harpcaller/harp"
)

// paint is a colour of text on a terminal. What is painted also says it in letters.
type paint string

const (
	plain  paint = ""
	red    paint = "\x1b[31m"
	green  paint = "\x1b[32m"
	yellow paint = "\x1b[33m"
	dim    paint = "\x1b[2m"

	unpainted = "\x1b[0m"
)

// painter puts colours into text for one stream, or leaves it as it is.
type painter bool

// paintText paints a text that is safe already.
func (p painter) paintText(colour paint, text string) string {
	if !p || colour == plain || text == "" {
		return text
	}
	return string(colour) + text + unpainted
}

// colours says when there are any: --color.
type colours string

const (
	coloursAuto   colours = "" // on a terminal, if the environment does not say otherwise
	coloursAlways colours = "always"
	coloursNever  colours = "never"
)

// String returns the flag's value.
func (w *colours) String() string {
	if *w == coloursAuto {
		return "auto"
	}
	return string(*w)
}

// Set reads the flag.
func (w *colours) Set(word string) error {
	switch colours(word) {
	case "auto":
		*w = coloursAuto
	case coloursAlways, coloursNever:
		*w = colours(word)
	default:
		return errors.New("must be auto, always or never")
	}
	return nil
}

// Type names the flag's type in the help.
func (w *colours) Type() string { return "when" }

// decide says whether a stream gets colours: the flag goes before the environment,
// and that before what the stream is.
func (w colours) decide(env func(string) string, terminal bool) painter {
	force := env("CLICOLOR_FORCE")
	switch {
	case w != coloursAuto:
		return w == coloursAlways
	case env("NO_COLOR") != "":
		return false
	case force != "" && force != "0":
		return true
	}
	return painter(terminal && env("TERM") != "dumb")
}

// painters are those of stdout and stderr.
func (c *cli) painters() (stdout, stderr painter) {
	return c.colours.decide(c.env, c.terminal), c.colours.decide(c.env, c.errTerminal)
}

// stateColumn is the header of the column, and the name of the line, that say the
// state of a job.
const stateColumn = "state"

// paintOfState is the colour of a state in the words of people.
func paintOfState(text string) paint {
	word, _, _ := strings.Cut(text, " ")
	switch harp.State(word) {
	case harp.StateSucceeded:
		return green
	case harp.StateFailed, harp.StateTimedOut, harp.StateRejected, harp.StateExpired, harp.StateLost, "unreachable":
		return red
	case harp.StateUnknown, harp.StateCancelling:
		return yellow
	case harp.StateCancelled:
		return dim
	default:
		return plain
	}
}

// isTerminalReader reports whether a person types what r reads.
func isTerminalReader(r io.Reader) bool {
	w, ok := r.(io.Writer) // a file is both
	return ok && isTerminal(w)
}
