package schedule

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// CrontabKind says which of the two forms a table of cron has.
type CrontabKind uint8

// The forms.
const (
	SystemCrontab CrontabKind = iota // /etc/crontab and those in /etc/cron.d: a user stands before the command
	UserCrontab                      // what crontab -l prints
)

// Crontab is what was read of a table of cron.
type Crontab struct {
	Jobs []CrontabJob
	Left []*LineError // lines that no schedule can be made of, with the reason
}

// CrontabJob is a line of a table that says what is run when.
type CrontabJob struct {
	Line    int      // in the table, from 1
	Cron    string   // when, as Parse takes it
	Zone    string   // CRON_TZ, if the table sets it above the line
	User    string   // as whom; empty in a user's own table
	Command string   // for the shell, $SHELL -c, by default /bin/sh
	Input   string   // what the command reads, in the table behind its first %
	Env     []string // NAME=value, as the table sets them above the line; shared between jobs
}

// LineError says which line of a table could not be used, and why. Err is a [*FieldError]
// where it is about when the line is run.
type LineError struct {
	Line int // from 1
	Text string
	Err  error
}

// Error names the line and says why.
func (e *LineError) Error() string {
	return fmt.Sprintf("schedule: line %d: %s", e.Line, strings.TrimPrefix(e.Err.Error(), "schedule: "))
}

// Unwrap returns why the line could not be used.
func (e *LineError) Unwrap() error { return e.Err }

// What a table may have at most.
const (
	maxTable     = 1 << 20 // bytes
	maxTableJobs = 10_000
	maxTableEnv  = 256 // variables
)

// ReadCrontab reads a table of cron. Lines that no schedule can be made of, as those of @reboot, are in
// Left. Errors: what r returns; a [*LineError] if the table is not text, or has more than 1 MiB, 10,000 jobs or 256 variables.
func ReadCrontab(r io.Reader, kind CrontabKind) (*Crontab, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxTable+1))
	if err != nil {
		return nil, err
	}
	read := crontabReader{kind: kind}
	for line := range strings.Lines(string(text)) {
		read.line++
		if err := read.readLine(line); err != nil {
			return nil, &LineError{Line: read.line, Err: err}
		}
	}
	if len(text) > maxTable {
		return nil, &LineError{Line: read.line, Err: errors.New("the table is longer than 1 MiB")}
	}
	return &read.table, nil
}

type crontabReader struct {
	kind  CrontabKind
	line  int
	zone  string
	env   []string
	table Crontab
}

// readLine returns an error for what ends the reading.
func (r *crontabReader) readLine(text string) error {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return errors.New("is not text")
	}
	text = strings.TrimSpace(text)
	if text == "" || text[0] == '#' {
		return nil
	}
	if name, value, ok := parseEnv(text); ok {
		return r.setEnv(name, value)
	}
	job, err := r.parseJob(text)
	switch {
	case err != nil:
		r.table.Left = append(r.table.Left, &LineError{r.line, text, err})
	case len(r.table.Jobs) == maxTableJobs:
		return fmt.Errorf("the table has more than %d jobs", maxTableJobs)
	default:
		r.table.Jobs = append(r.table.Jobs, job)
	}
	return nil
}

func (r *crontabReader) setEnv(name, value string) error {
	if name == "CRON_TZ" {
		r.zone = value
		return nil
	}
	// Jobs above this line keep what they have.
	r.env = slices.DeleteFunc(slices.Clone(r.env), func(set string) bool { return strings.HasPrefix(set, name+"=") })
	if len(r.env) == maxTableEnv {
		return fmt.Errorf("the table sets more than %d variables", maxTableEnv)
	}
	r.env = append(r.env, name+"="+value)
	return nil
}

// parseEnv reads NAME = value; quotes around either are left out.
func parseEnv(text string) (name, value string, ok bool) {
	name, rest, ok := cutEnvWord(text)
	rest, isSet := strings.CutPrefix(strings.TrimLeft(rest, " \t"), "=")
	if !ok || !isSet || name == "" {
		return "", "", false
	}
	rest = strings.TrimLeft(rest, " \t")
	if rest == "" || rest[0] != '"' && rest[0] != '\'' {
		return name, rest, true
	}
	value, rest, ok = cutEnvWord(rest)
	return name, value, ok && rest == ""
}

// cutEnvWord returns the first word of a text, which may be in quotes, and what is behind it.
func cutEnvWord(text string) (word, rest string, ok bool) {
	if quote := text[:1]; quote == `"` || quote == `'` {
		return strings.Cut(text[1:], quote)
	}
	end := strings.IndexAny(text, " \t=")
	if end < 0 {
		return text, "", true
	}
	return text[:end], text[end:], true
}

func (r *crontabReader) parseJob(text string) (CrontabJob, error) {
	job := CrontabJob{Line: r.line, Zone: r.zone, Env: r.env}
	fields := 5
	if text[0] == '@' {
		fields = 1
	}
	var when []string
	for range fields {
		var word string
		word, text = cutWord(text)
		when = append(when, word)
	}
	job.Cron = strings.TrimRight(strings.Join(when, " "), " ")
	if _, err := Parse(job.Cron, job.Zone, Rules{}); err != nil {
		return job, err
	}
	if r.kind == SystemCrontab {
		job.User, text = cutWord(text)
	}
	if text == "" {
		return job, errors.New("has no command")
	}
	job.Command, job.Input = splitInput(text)
	return job, nil
}

func cutWord(text string) (word, rest string) {
	end := strings.IndexAny(text, " \t")
	if end < 0 {
		return text, ""
	}
	return text[:end], strings.TrimLeft(text[end:], " \t")
}

// splitInput parts a command from what it reads: % is the end of a line, and the first one the beginning of the
// input; \% is a percent sign.
func splitInput(text string) (command, input string) {
	var b strings.Builder
	inCommand := true
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text) && text[i+1] == '%':
			i++
			b.WriteByte('%')
		case text[i] != '%':
			b.WriteByte(text[i])
		case inCommand:
			command, inCommand = b.String(), false
			b.Reset()
		default:
			b.WriteByte('\n')
		}
	}
	if inCommand {
		return b.String(), ""
	}
	if input = b.String(); !strings.HasSuffix(input, "\n") {
		input += "\n"
	}
	return command, input
}
