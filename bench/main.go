package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
	"github.com/harpcaller/harp/bench/internal/report"
)

func main() {
	if lab.IsChild() {
		// A Ctrl-C meets all; who started this process ends it in order.
		signal.Ignore(os.Interrupt)
		exit(lab.RunChild(roles))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exit(run(ctx))
}

// exit ends the process: with 2 where what was asked for makes no sense, as package flag does.
func exit(err error) {
	var usage *usageError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &usage):
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// usageError says what is wrong with the command line.
type usageError struct{ reason string }

func (e *usageError) Error() string { return e.reason }

func misused(format string, a ...any) error { return &usageError{fmt.Sprintf(format, a...)} }

// settings are the flags.
type settings struct {
	list, quick bool
	run, skip   string
	at          string
	rounds      int
	length      time.Duration
	dir, out    string
	from, page  string
	profile     string
	trace       string
}

func parse() settings {
	var s settings
	flag.BoolVar(&s.list, "list", false, "say what can be measured, and with what")
	flag.StringVar(&s.run, "run", "", "only the workloads, or WORKLOAD/SUBJECTs, that match this `regexp`")
	flag.StringVar(&s.skip, "skip", "", "not those that match this `regexp`")
	flag.StringVar(&s.at, "at", "", "only these `sizes` of the work, with commas between")
	flag.IntVar(&s.rounds, "rounds", 0, "how often each takes its turn (default 3, quick 1)")
	flag.DurationVar(&s.length, "for", 0, "how long a round lasts where work has no end (default 2s, quick 1s)")
	flag.BoolVar(&s.quick, "quick", false, "less work and fewer sizes of it, to see that all works")
	flag.StringVar(&s.dir, "dir", ".", "the `directory` on whose disk is measured")
	flag.StringVar(&s.out, "json", "", "write the results to this `file`")
	flag.StringVar(&s.from, "from", "", "measure nothing, report this `file` again")
	flag.StringVar(&s.page, "page", "", "write the results to this Markdown `file`, with plots beside it")
	flag.StringVar(&s.profile, "cpuprofile", "", "write where this process spent its time to this `file`, and each other one to FILE.ROLE.PID")
	flag.StringVar(&s.trace, "trace", "", "write an execution trace of this process to this `file`")
	flag.Parse()
	if s.rounds == 0 {
		s.rounds = pick(s.quick, 1, 3)
	}
	if s.length == 0 {
		s.length = pick(s.quick, time.Second, 2*time.Second)
	}
	return s
}

// asked are the flags that say what is measured and how, as they were given.
func asked() (args []string) {
	flag.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "run", "skip", "at", "rounds", "for", "quick":
			args = append(args, "-"+f.Name+"="+f.Value.String())
		}
	})
	return args
}

func pick[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

func run(ctx context.Context) error {
	s := parse()
	if flag.NArg() > 0 {
		return misused("%q is no flag: what is measured is selected with -run", flag.Arg(0))
	}
	chosen, err := choose(workloads(), s.run, s.skip)
	if err != nil {
		return err
	}
	if chosen, err = resize(chosen, s.at); err != nil {
		return err
	}
	if s.list {
		list(chosen)
		return nil
	}
	r, err := results(ctx, s, chosen)
	if err != nil {
		return err
	}
	if err := r.Table(os.Stdout); err != nil || s.page == "" {
		return err
	}
	return r.WritePage(s.page)
}

// choose keeps what matches. A workload whose name matches has all its subjects. It is an
// error if nothing is left: who mistyped a name would take it for measured.
func choose(all []measure.Workload, only, skip string) ([]measure.Workload, error) {
	in, err := regexp.Compile(only)
	if err != nil {
		return nil, misused("-run: %v", err)
	}
	out, err := regexp.Compile(skip)
	if err != nil {
		return nil, misused("-skip: %v", err)
	}
	var chosen []measure.Workload
	for _, w := range all {
		subjects := w.Subjects
		w.Subjects = nil
		for _, s := range subjects {
			name := w.Name + "/" + s.Name
			wanted := in.MatchString(w.Name) || in.MatchString(name)
			unwanted := skip != "" && (out.MatchString(w.Name) || out.MatchString(name))
			if wanted && !unwanted {
				w.Subjects = append(w.Subjects, s)
			}
		}
		if len(w.Subjects) > 0 {
			chosen = append(chosen, w)
		}
	}
	if len(chosen) == 0 {
		return nil, misused("nothing matches -run %q -skip %q; there are\n  %s", only, skip, strings.Join(names(all), "\n  "))
	}
	return chosen, nil
}

// names are what a selection is matched against: of each workload, and of its subjects.
func names(all []measure.Workload) []string {
	var out []string
	for _, w := range all {
		out = append(out, w.Name)
		for _, s := range w.Subjects {
			out = append(out, w.Name+"/"+s.Name)
		}
	}
	return out
}

// resize lets workloads be of the sizes that are asked for, if any are.
func resize(ws []measure.Workload, at string) ([]measure.Workload, error) {
	if at == "" {
		return ws, nil
	}
	var sizes []int
	for s := range strings.SplitSeq(at, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return nil, misused("-at %s: sizes are whole numbers above 0", at)
		}
		sizes = append(sizes, n)
	}
	for i := range ws {
		ws[i].Points, ws[i].Quick = sizes, sizes
	}
	return ws, nil
}

func list(ws []measure.Workload) {
	for _, w := range ws {
		fmt.Printf("%s: %s\n  %s: %v\n", w.Name, w.What, w.Axis, w.Points)
		for _, s := range w.Subjects {
			fmt.Printf("  %s/%s: %s\n", w.Name, s.Name, s.Note)
		}
	}
}

// results measures, or reads what was measured.
func results(ctx context.Context, s settings, chosen []measure.Workload) (*report.Report, error) {
	if s.from != "" {
		return report.Read(s.from)
	}
	l, err := lab.New(s.dir)
	if err != nil {
		return nil, err
	}
	l.Quick = s.quick
	if s.profile != "" {
		if l.Profile, err = filepath.Abs(s.profile); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	stop, err := watch(s)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	r, err := all(ctx, s, l, chosen)
	err = errors.Join(err, stop())
	if s.out != "" && r != nil {
		err = errors.Join(err, r.Write(s.out))
	}
	return r, errors.Join(err, l.Close())
}

// all runs the workloads. With an error there is a report of what was measured
// before.
func all(ctx context.Context, s settings, l *lab.Lab, chosen []measure.Workload) (*report.Report, error) {
	machine, err := lab.Describe(l.Dir)
	if err != nil {
		return nil, err
	}
	r := report.New(machine, asked())
	plan := measure.Plan{Lab: l, Rounds: s.rounds, For: s.length, Quick: s.quick, Log: os.Stderr}
	for _, w := range chosen {
		result, err := plan.Run(ctx, w)
		r.Results = append(r.Results, result)
		if err != nil {
			return r, err
		}
	}
	r.Took = time.Since(r.Began)
	return r, nil
}
