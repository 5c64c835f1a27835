package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/harpcaller/harp"
)

// recordPrinter prints the records of one job. What it prints is on stdout when
// print returns.
type recordPrinter struct {
	cli  *cli
	all  bool   // from the first record on
	seen bool   // something was printed
	next uint64 // the number after the last one that was
}

// follow prints records until the job has ended or, if that is what records does,
// for as long as there are any. It returns what the loop ended with.
func (p *recordPrinter) follow(records func(yield func(harp.Record, error) bool)) error {
	if p.cli.format == formatJSON {
		return p.collect(records)
	}
	for r, err := range records {
		if err != nil {
			return err
		}
		if err := p.print(r); err != nil {
			return err
		}
		p.next, p.seen = r.Seq+1, true
	}
	return nil
}

// print prints one record: of kind data its value on one line, of the others
// their text; on a terminal with time and number before each line.
func (p *recordPrinter) print(r harp.Record) error {
	if p.cli.format == formatLines {
		return p.cli.line(r)
	}
	if r.Truncated > 0 {
		p.cli.notice("%d bytes were dropped before #%d", r.Truncated, r.Seq)
	}
	text, err := recordText(r)
	if err != nil {
		return err
	}
	if !p.cli.terminal {
		_, err := fmt.Fprintf(p.cli.stdout, "%s\n", text)
		return err
	}
	stamp := fmt.Sprintf("%s #%d ", r.Time.Local().Format("15:04:05.000"), r.Seq)
	for line := range strings.SplitSeq(text, "\n") {
		p.cli.say("%s%s", stamp, strings.TrimSuffix(line, "\r"))
	}
	return p.cli.stdout.err
}

// recordText is what a record says, without a newline at its end.
func recordText(r harp.Record) (string, error) {
	if r.Kind != harp.KindData {
		switch text, err := r.Value.Any(); text := text.(type) {
		case string:
			return strings.TrimSuffix(text, "\n"), err
		case []byte:
			return strings.TrimSuffix(string(text), "\n"), err
		}
	}
	text, err := r.Value.MarshalJSON()
	return string(safeJSON(text)), err
}

// collect prints all records as one object. What there is of it when the loop ends
// is whole JSON.
func (p *recordPrinter) collect(records func(yield func(harp.Record, error) bool)) (err error) {
	out := p.cli.stdout
	fmt.Fprintf(out, `{"v":%d,"records":[`, version) //nolint:errcheck // stdout keeps its error
	defer func() { fmt.Fprintln(out, "]}") }()       //nolint:errcheck // stdout keeps its error
	for r, err := range records {
		if err != nil {
			return err
		}
		text, err := compact(r)
		if err != nil {
			return err
		}
		comma := ","
		if !p.seen {
			comma = ""
		}
		if _, err := fmt.Fprintf(out, "%s%s", comma, safeJSON(text)); err != nil {
			return err
		}
		p.next, p.seen = r.Seq+1, true
	}
	return nil
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
	again := "harp job follow " + job.ID()
	if p.seen || p.all {
		again += fmt.Sprintf(" --since %d", p.next)
	}
	return &detachedError{job: job.ID(), again: again, at: p.at()}
}

// unless returns otherwise if ctx has ended, else err.
func unless(ctx context.Context, err, otherwise error) error {
	if err != nil && ctx.Err() != nil {
		return otherwise
	}
	return err
}
