package schedule_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/harpcaller/harp/schedule"
)

func readCrontab(t *testing.T, text string, kind schedule.CrontabKind) *schedule.Crontab {
	t.Helper()
	table, err := schedule.ReadCrontab(strings.NewReader(text), kind)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestDebianCrontabs: all that Debian installs is read, and robfig/cron says the same of its next five times.
func TestDebianCrontabs(t *testing.T) {
	paths, err := filepath.Glob("testdata/debian/cron.d/*")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	jobs := 0
	for _, path := range append(paths, "testdata/debian/crontab") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		table := readCrontab(t, string(text), schedule.SystemCrontab)
		for _, left := range table.Left {
			t.Errorf("%s: %v", path, left)
		}
		for _, job := range table.Jobs {
			jobs++
			if job.User != "root" || job.Command == "" || job.Input != "" {
				t.Errorf("%s: got %+v", path, job)
			}
			compareWithRobfig(t, job.Cron)
		}
	}
	if jobs != 12 {
		t.Errorf("got %d jobs", jobs)
	}
}

func compareWithRobfig(t *testing.T, text string) {
	t.Helper()
	// robfig/cron has no 7 for Sunday.
	other, err := cron.ParseStandard(strings.Replace(text, "* 7", "* 0", 1))
	if err != nil {
		t.Fatal(err)
	}
	s := mustParse(t, text, "", schedule.Rules{})
	now := time.Date(2026, 11, 25, 13, 47, 44, 0, time.UTC)
	for range 5 {
		m, ok := s.Next(now)
		if want := other.Next(now); !ok || !m.Nominal.Equal(want) {
			t.Errorf("%s after %v: got %v, robfig/cron says %v", text, now, m.Nominal, want)
		}
		now = m.Nominal
	}
}

// TestCrontab reads what tables may have beside plain lines.
func TestCrontab(t *testing.T) {
	const text = `# a comment
  # another one
"MAILTO" = 'ops @ example.org'
PATH=/bin:/usr/bin
*/5 * * * *	cat > /tmp/out%one%two \% %
PATH = "/sbin"
CRON_TZ=Europe/Madrid
@daily backup --tag=a=b   # not a comment
30 2 * jan-mar mon,wed echo '50\% off' FOO=bar
`
	table := readCrontab(t, text, schedule.UserCrontab)
	want := []schedule.CrontabJob{
		{Line: 5, Cron: "*/5 * * * *", Command: "cat > /tmp/out", Input: "one\ntwo % \n", Env: []string{"MAILTO=ops @ example.org", "PATH=/bin:/usr/bin"}},
		{Line: 8, Cron: "@daily", Zone: "Europe/Madrid", Command: "backup --tag=a=b   # not a comment", Env: []string{"MAILTO=ops @ example.org", "PATH=/sbin"}},
		{Line: 9, Cron: "30 2 * jan-mar mon,wed", Zone: "Europe/Madrid", Command: "echo '50% off' FOO=bar", Env: []string{"MAILTO=ops @ example.org", "PATH=/sbin"}},
	}
	if got := fmt.Sprintf("%+v", table.Jobs); got != fmt.Sprintf("%+v", want) {
		t.Errorf("got  %s\nwant %+v", got, want)
	}
	if len(table.Left) != 0 {
		t.Errorf("left: %v", table.Left)
	}
}

// TestCrontabLeft: what no schedule can be made of is told with its line, and the rest is read.
func TestCrontabLeft(t *testing.T) {
	const text = "@reboot root /usr/bin/thing\n" + // 1
		"61 * * * * root true\n" + // 2
		"1 2 3\n" + // 3
		"0 0 * * * root\n" + // 4
		"CRON_TZ=Nowhere/At_All\r\n" +
		"0 0 * * * root true\n" + // 6
		"CRON_TZ=\n" +
		"0 0 31 2 * root never\n" +
		"@every_minute root true\n" + // 9
		"0 1 * * * root true" // no end of line
	table := readCrontab(t, text, schedule.SystemCrontab)
	var lines []int
	var fields []string
	for _, left := range table.Left {
		lines = append(lines, left.Line)
		var wrong *schedule.FieldError
		if errors.As(left, &wrong) {
			fields = append(fields, wrong.Field+" "+wrong.Part)
		} else {
			fields = append(fields, left.Err.Error())
		}
	}
	if want := []int{1, 2, 3, 4, 6, 9}; !slices.Equal(lines, want) {
		t.Errorf("left lines %v, want %v", lines, want)
	}
	if want := []string{"cron ", "cron minute", "cron ", "has no command", "tz ", "cron "}; !slices.Equal(fields, want) {
		t.Errorf("left because of %q, want %q", fields, want)
	}
	if len(table.Jobs) != 2 || table.Jobs[1].Line != 10 || table.Jobs[1].Command != "true" {
		t.Errorf("got %+v", table.Jobs)
	}
}

// TestCrontabBounds: a table that is no table is refused with the line.
func TestCrontabBounds(t *testing.T) {
	many := &strings.Builder{}
	for i := range 300 {
		fmt.Fprintf(many, "V%d=x\n", i)
	}
	for name, c := range map[string]struct {
		text string
		line int
	}{
		"long line":      {strings.Repeat("#", 2<<20), 1},
		"many lines":     {strings.Repeat("#\n", 1<<20), 1 << 19},
		"many jobs":      {strings.Repeat("* * * * * x\n", 10_001), 10_001},
		"many variables": {many.String(), 257},
		"binary":         {"# table\n\x00\x01\n", 2},
		"not UTF-8":      {"* * * * * echo \xff\n", 1},
	} {
		_, err := schedule.ReadCrontab(strings.NewReader(c.text), schedule.UserCrontab)
		var wrong *schedule.LineError
		if !errors.As(err, &wrong) || wrong.Line < c.line || wrong.Line > c.line+1 {
			t.Errorf("%s: got %v, want an error of line %d", name, err, c.line)
		}
	}
	broken := errors.New("broken")
	if _, err := schedule.ReadCrontab(iotest.ErrReader(broken), schedule.UserCrontab); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

// FuzzCrontab: whatever a table is, what is read of it can be parsed.
func FuzzCrontab(f *testing.F) {
	f.Add([]byte("MAILTO=x\n@daily root true\n*/5 * * * * root cat%in\n"), true)
	f.Add([]byte("'a b' = \"c\" \n@reboot x\n0 0 1 1 * x\\%y%z"), false)
	f.Fuzz(func(t *testing.T, text []byte, system bool) {
		kind := schedule.UserCrontab
		if system {
			kind = schedule.SystemCrontab
		}
		table, err := schedule.ReadCrontab(bytes.NewReader(text), kind)
		if err != nil {
			return
		}
		for _, job := range table.Jobs {
			if _, err := schedule.Parse(job.Cron, job.Zone, schedule.Rules{}); err != nil || job.Command == "" && job.Input == "" {
				t.Errorf("%+v: %v", job, err)
			}
		}
	})
}
