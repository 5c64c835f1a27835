package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The lines between which a page's results stand; the rest of it is kept.
const (
	from = "<!-- results: made by `make bench`, do not edit -->"
	to   = "<!-- end of results -->"
)

// intro is the beginning of a new page.
const intro = `# Performance

harp compared with its alternatives, in one run on one machine. The subjects of a workload
take turns, and what counts is the ratio within a round. There are three rounds
unless the run was told otherwise; each workload says how many it had. Each figure is the
median of the rounds, followed by the least and the most. All connections are TLS 1.3 over
loopback, all disks are real ones, and what is called durable is synced before it is
acknowledged. A payload has 100 bytes, in and out, unless stated otherwise. "Better by"
is above 1 where harp, the first subject, is better, also for times and sizes. Where work
comes in several sizes, such as calls in flight or jobs stored, the plots show how each figure
changes with the size.

Systems with a server process are compared with "harp apart", whose dispatcher and agent are
processes of their own, too; harp in one process has a row of its own.
The processes of dispatchers and agents are set up as the program harp does it: they collect
garbage early, but not before there is some, and a dispatcher's GOMAXPROCS is raised by two.
gRPC and NATS are measured as they are and, in rows called tuned, with the same garbage collector
settings.
The dashed lines, called limit and bare, are what one can build by hand for that one workload;
they promise much less.

` + "`make bench`" + ` repeats all of it in less than half an hour (` + "`make bench ROUNDS=2`" + ` takes a fifth
less); ` + "`make bench-quick`" + ` shows in a few minutes that it works;
` + "`make bench RUN='^durable-job$'`" + ` measures one workload and leaves this page alone;
` + "`cd bench && go doc`" + ` says more. Figures differ from machine to machine, the ratios less so;
` + "`harp bench`" + ` measures a deployment of your own
([operating.md](operating.md#measuring)).

`

// WritePage writes the results into a Markdown page, which it makes if there is
// none, and their plots beside it.
func (r *Report) WritePage(path string) error {
	old, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	text := string(old)
	if text == "" {
		text = intro + from + "\n" + to + "\n"
	}
	before, rest, ok1 := strings.Cut(text, from)
	_, after, ok2 := strings.Cut(rest, to)
	if !ok1 || !ok2 {
		return fmt.Errorf("%s has no place for results: the lines %q and %q", path, from, to)
	}
	body, err := r.markdown(filepath.Dir(path))
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(before+from+"\n\n"+body+to+after), 0o644) //nolint:gosec // for everybody to read
}

// markdown makes a section for each workload.
func (r *Report) markdown(dir string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured with `%s`: %s.\n\n", strings.Join(append([]string{"bench"}, r.Args...), " "), r.where())
	for _, result := range r.Results {
		fmt.Fprintf(&b, "## %s\n\n%s. %s. To repeat: `cd bench && go run . -run '^%s$'`.\n\n",
			result.Workload, sentence(result.What), sentence(rounds(result)), result.Workload)
		for _, line := range named(result) {
			fmt.Fprintf(&b, "%s\n\n", line)
		}
		if len(points(result)) > 1 {
			file := "performance-" + result.Workload + ".svg"
			if err := os.WriteFile(filepath.Join(dir, file), plot(result), 0o644); err != nil { //nolint:gosec // for everybody to read
				return "", err
			}
			fmt.Fprintf(&b, "![%s](%s)\n\n", result.Workload, file)
		}
		for i, row := range rows(result) {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
			if i == 0 {
				fmt.Fprintf(&b, "|%s\n", strings.Repeat(" --- |", len(row)))
			}
		}
		b.WriteString("\n")
		for _, t := range result.Subjects {
			if t.Note != "" {
				fmt.Fprintf(&b, "- %s: %s.\n", t.Name, t.Note)
			}
		}
		for _, line := range missing(result) {
			fmt.Fprintf(&b, "- not measured: %s.\n", line)
		}
		b.WriteString("\n")
	}
	return b.String(), nil
}

func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
