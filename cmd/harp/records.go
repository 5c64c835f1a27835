package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/harpcaller/harp"
)

// recordPrinter prints the records of one job. What it prints is on stdout when
// print returns; but for what a command said on stderr, and what was logged, which
// go to stderr when stdout is not a terminal: so what is piped is what was printed.
type recordPrinter struct {
	cli  *cli
	all  bool   // from the first record on
	tail bool   // from one of the last on: how many are left out is said
	seen bool   // something was printed
	next uint64 // the number after the last one that was

	output []byte          // the last that was printed on stdout there, for endedWith
	open   harp.RecordKind // of a line on the terminal that goes on in the next record
	redraw bool            // that line ended with a carriage return: the next goes over it
}

// printRecords prints records until the job has ended or, if that is what records does,
// for as long as there are any. It returns what the loop ended with.
func (p *recordPrinter) printRecords(records func(yield func(harp.Record, error) bool)) error {
	if p.cli.format == formatJSON {
		return p.collect(records)
	}
	defer p.endLine()
	for r, err := range records {
		if err != nil {
			return err
		}
		if p.tail && !p.seen && r.Seq > 0 {
			p.cli.notice("%d earlier records left out; --since 0 shows them", r.Seq)
		}
		if err := p.printRecord(r); err != nil {
			return err
		}
		p.next, p.seen = r.Seq+1, true
	}
	return nil
}

// printRecord prints one record: of kind data its value on one line, of the others
// their text; on a terminal with time and number before each line.
func (p *recordPrinter) printRecord(r harp.Record) error {
	if p.cli.format == formatLines {
		return p.cli.printLine(r)
	}
	switch {
	case r.Truncated > 0 && len(r.Value) == 0:
		p.cli.notice("%d bytes were dropped at #%d", r.Truncated, r.Seq)
		return nil
	case r.Truncated > 0:
		p.cli.notice("%d bytes were dropped before #%d", r.Truncated, r.Seq)
	}
	if r.Missing > 0 {
		p.cli.notice("%d records from #%d on are missing: this dispatcher was restored from a backup made before they arrived", r.Missing, r.Seq)
		return nil
	}
	text, err := recordText(r)
	if err != nil {
		return err
	}
	p.keepOutput(r, text)
	if p.cli.terminal && !p.cli.raw {
		p.show(r, text)
		return p.cli.stdout.err
	}
	if r.Kind != harp.KindStderr && r.Kind != harp.KindLog {
		return p.copyOut(r, text)
	}
	p.copyErr(r, text)
	return nil
}

// copyOut writes a record's text to stdout as it is: a line that goes on in the next
// record has no end yet.
func (p *recordPrinter) copyOut(r harp.Record, text string) error {
	out := p.cli.stdout
	if r.Kind == harp.KindData {
		p.cli.freshLine()
	}
	if !r.Partial {
		text += "\n"
	}
	_, err := io.WriteString(out, text)
	return err
}

// copyErr writes what was said on stderr, or logged, to stderr.
func (p *recordPrinter) copyErr(r harp.Record, text string) {
	_, errs := p.cli.painters()
	if p.cli.errTerminal && !p.cli.raw {
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			lines[i] = errs.paintText(paintOfKind(r.Kind), safeLine(strings.TrimSuffix(line, "\r")))
		}
		text = strings.Join(lines, "\n")
	}
	if !r.Partial {
		text += "\n"
	}
	io.WriteString(p.cli.stderr, text) //nolint:errcheck // there is nowhere to say it
}

// overwrite goes to the beginning of the terminal's line and empties it.
const overwrite = "\r\x1b[K"

// show writes a record's text to a terminal: nothing of it can move the cursor. A
// line that ended with a carriage return, as those of a progress bar, is overwritten
// by the next one of its kind.
func (p *recordPrinter) show(r harp.Record, text string) {
	if p.open != r.Kind {
		p.endLine()
	}
	var b strings.Builder
	out, _ := p.cli.painters()
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		goesOn := i == len(lines)-1 && r.Partial
		if goesOn && i > 0 && line == "" {
			break // the next line begins in the next record
		}
		b.WriteString(p.beginning(r, line))
		b.WriteString(out.paintText(paintOfKind(r.Kind), safeLine(strings.TrimSuffix(line, "\r"))))
		if goesOn {
			p.open, p.redraw = r.Kind, strings.HasSuffix(line, "\r")
			break
		}
		b.WriteByte('\n')
		p.open, p.redraw = "", false
	}
	p.writeSafe(b.String())
}

// beginning is what comes before a line, which may be the rest of one.
func (p *recordPrinter) beginning(r harp.Record, line string) string {
	switch {
	case p.open == "":
		return p.stamp(r)
	case p.redraw && line != "":
		return overwrite + p.stamp(r)
	}
	return ""
}

// writeSafe writes what is safe to stdout, which keeps its error.
func (p *recordPrinter) writeSafe(text string) {
	_, _ = io.WriteString(p.cli.stdout, text)
}

// endLine ends a line on the terminal that has no end yet.
func (p *recordPrinter) endLine() {
	if p.open != "" {
		p.writeSafe("\n")
	}
	p.open, p.redraw = "", false
}

// stamp is what stands before a line: time, number and, unless it is data, of what
// kind it is.
func (p *recordPrinter) stamp(r harp.Record) string {
	return fmt.Sprintf("%s #%d %s", p.cli.times.stamp(r.Time, time.Now()), r.Seq, kindMark(r.Kind))
}

// kindMark says of what kind a record is; nothing of data.
func kindMark(kind harp.RecordKind) string {
	switch kind {
	case harp.KindData:
		return ""
	case harp.KindStdout:
		return "out "
	case harp.KindStderr:
		return "err "
	default:
		return safeLine(string(kind)) + " "
	}
}

func paintOfKind(kind harp.RecordKind) paint {
	switch kind {
	case harp.KindStderr:
		return red
	case harp.KindLog:
		return dim
	default:
		return plain
	}
}

// recordText is what a record says. A newline at its end is left out, unless the
// record is a part of the output as it was.
func recordText(r harp.Record) (string, error) {
	if r.Kind != harp.KindData {
		switch text, err := r.Value.Any(); text := text.(type) {
		case string:
			return trimEnd(text, r.Partial), err
		case []byte:
			return trimEnd(string(text), r.Partial), err
		}
	}
	text, err := r.Value.MarshalJSON()
	return string(safeJSON(text)), err
}

func trimEnd(text string, partial bool) string {
	if partial {
		return text
	}
	return strings.TrimSuffix(text, "\n")
}

// maxKeptOutput is how much of the output is kept: a result has at most 1 MiB.
const maxKeptOutput = 2 << 20

// keepOutput keeps what a command printed on its stdout, of much the last.
func (p *recordPrinter) keepOutput(r harp.Record, text string) {
	if !p.all || r.Kind != harp.KindStdout {
		return
	}
	p.output = append(p.output, text...)
	if !r.Partial {
		p.output = append(p.output, '\n')
	}
	if len(p.output) > 2*maxKeptOutput {
		p.output = append(p.output[:0], p.output[len(p.output)-maxKeptOutput:]...)
	}
}

// endedWith reports whether a command's result is all of its stdout, or its last line, which
// has been printed: nobody wants it twice.
func (p *recordPrinter) endedWith(result harp.Value) bool {
	printed := strings.TrimRight(string(p.output), "\n")
	if printed == "" {
		return false
	}
	got, err := result.Any()
	if text, ok := got.(string); ok && err == nil && strings.TrimRight(text, "\n") == printed {
		return true
	}
	line := printed[strings.LastIndexByte(printed, '\n')+1:]
	last, err := parseJSON([]byte(line))
	if err != nil {
		return false
	}
	same, err := harp.NewValue(last)
	if err != nil {
		return false
	}
	a, errA := same.Canonical()
	b, errB := result.Canonical()
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// collectOutput reads what a command printed, as fields of JSON.
func collectOutput(records iter.Seq2[harp.Record, error]) ([]field, error) {
	var stdout, stderr strings.Builder
	for r, err := range records {
		if err != nil {
			return nil, err
		}
		text, err := recordText(r)
		if err != nil {
			return nil, err
		}
		if !r.Partial {
			text += "\n"
		}
		switch r.Kind {
		case harp.KindStdout:
			stdout.WriteString(text)
		case harp.KindStderr:
			stderr.WriteString(text)
		default:
		}
	}
	return []field{{"stdout", stdout.String()}, {"stderr", stderr.String()}}, nil
}

// freshLine ends the line that stdout is within, so that what comes next stands on
// its own.
func (c *cli) freshLine() {
	if c.stdout.within {
		_, _ = io.WriteString(c.stdout, "\n") // stdout keeps its error
	}
}

// collect prints all records as one object.
func (p *recordPrinter) collect(records func(yield func(harp.Record, error) bool)) error {
	return p.cli.printCollected("records", func(add func(any) error) error {
		for r, err := range records {
			if err == nil {
				err = add(r)
			}
			if err != nil {
				return err
			}
			p.next, p.seen = r.Seq+1, true
		}
		return nil
	}, nil)
}

// at says where the reader was when it left, " at #17"; "" if it had read nothing.
func (p *recordPrinter) at() string {
	if !p.seen {
		return ""
	}
	return fmt.Sprintf(" at #%d", p.next-1)
}

// detached is what a command that waited for a job ends with when it is
// interrupted.
func (p *recordPrinter) detached(job *harp.Job) error {
	resume := "harp job follow " + job.ID()
	if p.seen || p.all {
		resume += fmt.Sprintf(" --since %d", p.next)
	}
	return &detachedError{jobs: []string{job.ID()}, resume: resume, at: p.at(), goesOn: p.cli.line.goesOn()}
}

// unless returns otherwise if ctx has ended, else err.
func unless(ctx context.Context, err, otherwise error) error {
	if err != nil && ctx.Err() != nil {
		return otherwise
	}
	return err
}
