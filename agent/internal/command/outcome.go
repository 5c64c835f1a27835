package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/internal/wire"
)

// The types of a failed command's *harp.RemoteError.
const (
	TypeExit      = "exit"      // it ended with an exit code that is no success
	TypeSignal    = "signal"    // a signal ended it that harp had not sent
	TypeTimeout   = "timeout"   // a limit stopped it
	TypeCancelled = "cancelled" // a cancel did
	TypeNoResult  = "no_result" // it succeeded, but left no result
	TypeNoReboot  = "no_reboot" // it succeeded, but the machine that it was to boot has not gone down
)

// The exit codes of commands that were stopped.
const (
	exitLimit     = 124
	exitCancelled = 143
	exitSignal    = 128 // and the signal's number
)

// errGone is of a supervisor that died with its command.
var errGone = fmt.Errorf("%w: the process that ran the command died", harp.ErrLost)

// Outcome is what a job's result is. Errors: *harp.RemoteError; harp.ErrLost if how it
// ended is not known.
func Outcome(end supervisor.End) (any, error) {
	switch {
	case end.Gone:
		return nil, errGone
	case !end.OK:
		return nil, failure(end)
	case end.ResultErr != "":
		return nil, noResult(end, reasons[end.ResultErr])
	}
	switch end.From {
	case fromExitCode, "":
		return int64(end.Exit), nil
	case fromLastJSON:
		var v harp.Value
		if err := json.Unmarshal(end.Result, &v); err != nil {
			return nil, noResult(end, detail(err))
		}
		return v, nil
	}
	if utf8.Valid(end.Result) {
		return string(end.Result), nil
	}
	return end.Result, nil
}

// NoReboot is the error of a command that ended well and was to boot the machine anew,
// which has not happened.
func NoReboot(end supervisor.End) error {
	return &harp.RemoteError{
		Type: TypeNoReboot, Message: line(fmt.Sprintf("exit code %d, but the machine has not rebooted", end.Exit), end),
		Data: data(end), ExitCode: new(end.Exit),
	}
}

// reasons say why there is no result.
var reasons = map[string]string{
	"none":      "it printed no result",
	"too_large": "its result is larger than result.max",
	"not_json":  "the last line that it printed is no JSON",
	"no_file":   "the file with its result cannot be read",
	"old_file":  "the file with its result is from before it ran",
}

func detail(err error) string {
	var wrong *harp.FieldError
	if errors.As(err, &wrong) {
		return "its result is no value: " + wrong.Message
	}
	return "its result is no JSON: " + err.Error()
}

func noResult(end supervisor.End, reason string) error {
	if reason == "" {
		reason = "it left no result"
	}
	return &harp.RemoteError{
		Type: TypeNoResult, Message: line(fmt.Sprintf("exit code %d, but %s", end.Exit, reason), end),
		Data: data(end), ExitCode: new(end.Exit),
	}
}

// failure is how a command failed: harp's stopping it counts before what it made of
// that. Why it was stopped is said by the job's state.
func failure(end supervisor.End) error {
	e := &harp.RemoteError{Data: data(end), Message: line(ending(end), end)}
	switch stop := end.Stopped; {
	case stop != nil && stop.Cause == wire.CauseCancel:
		e.Type, e.ExitCode = TypeCancelled, new(exitCancelled)
	case stop != nil:
		e.Type, e.ExitCode = TypeTimeout, new(exitLimit)
	case end.Signal != "":
		e.Type, e.ExitCode = TypeSignal, new(exitSignal+signalNumber(end.Signal))
	default:
		e.Type, e.ExitCode = TypeExit, new(end.Exit)
	}
	return e
}

// ending is how the command itself ended.
func ending(end supervisor.End) string {
	text := fmt.Sprintf("exit code %d", end.Exit)
	if end.Signal != "" {
		text = "ended by " + end.Signal
	}
	if end.Core {
		text += " (core dumped)"
	}
	if end.OutOfMemory {
		text += ", killed because it took more than memory_max"
	}
	switch {
	case end.Killed == 1:
		text += ", 1 process had to be killed"
	case end.Killed > 1:
		text += fmt.Sprintf(", %d processes had to be killed", end.Killed)
	}
	if end.OutputOpen {
		text += ", its output was still open"
	}
	return text
}

// line adds what the command said last, in one line.
func line(text string, end supervisor.End) string {
	said := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(end.LastError, "\uFFFD"))
	if said = strings.TrimSpace(said); said == "" {
		return text
	}
	return text + ": " + said
}

// data is how the command ended, for programs.
func data(end supervisor.End) harp.Value {
	d := map[string]any{
		"exit_code": end.Exit, "killed": end.Killed, "strays": end.Strays,
		"ran_for": end.RanFor.Round(time.Millisecond).String(), "cpu_time": end.CPUTime.Round(time.Millisecond).String(),
		"max_rss": end.MaxRSS,
	}
	for name, v := range map[string]string{"signal": end.Signal, "last_error": end.LastError, "no_result": end.ResultErr} {
		if v != "" {
			d[name] = strings.ToValidUTF8(v, "\uFFFD")
		}
	}
	if end.Core {
		d["core"] = true
	}
	if end.OutOfMemory {
		d["out_of_memory"] = true
	}
	if end.OutputOpen {
		d["output_open"] = true
	}
	if end.Stopped != nil {
		d["stopped"] = end.Stopped.Cause
	}
	v, err := harp.NewValue(d)
	if err != nil {
		return nil // texts and numbers always have a form
	}
	return v
}
