package demo

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// aLog is a file that a test writes and a procedure follows.
type aLog struct {
	t    *testing.T
	path string
	got  list[string]
}

func newLog(t *testing.T) *aLog {
	return &aLog{t: t, path: filepath.Join(t.TempDir(), "log")}
}

func (l *aLog) append(text string) {
	l.t.Helper()
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		l.t.Fatal(err)
	}
}

// follow follows the file, in virtual time, while steps are done one after the
// other with time enough to notice each.
func (l *aLog) follow(lines int, steps ...func()) error {
	ctx, cancel := context.WithCancelCause(l.t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := logFollow(ctx, FollowArgs{Path: l.path, Lines: &lines}, l.got.emit)
		done <- err
	}()
	for _, step := range steps {
		time.Sleep(time.Second)
		synctest.Wait()
		step()
	}
	time.Sleep(time.Second)
	synctest.Wait()
	cancel(errOver)
	return <-done
}

var errOver = errors.New("over")

func (l *aLog) want(lines ...string) {
	l.t.Helper()
	if !slices.Equal(l.got.records, lines) {
		l.t.Errorf("followed %.200q, want %.200q", l.got.records, lines)
	}
}

// inTime runs a test body in virtual time.
func inTime(t *testing.T, body func(t *testing.T, l *aLog)) {
	l := newLog(t)
	synctest.Test(t, func(t *testing.T) {
		l.t = t
		body(t, l)
	})
}

func TestLogFollow(t *testing.T) {
	inTime(t, func(t *testing.T, l *aLog) {
		l.append("old\n")
		err := l.follow(0,
			func() { l.append("one\ntwo\r\nthr") },
			func() { l.append("ee\n\nfour") })
		if !errors.Is(err, errOver) {
			t.Errorf("ended with %v", err)
		}
		l.want("one", "two", "three", "")
	})
}

func TestLogFollowBeginsWithTheLastLines(t *testing.T) {
	long := strings.Repeat("x", 2*maxLine) + "end"
	for _, test := range []struct {
		text  string
		lines int
		want  []string
	}{
		{"", 3, nil},
		{"a\nb\nc\n", 0, nil},
		{"a\nb\nc\n", 1, []string{"c"}},
		{"a\nb\nc\n", 2, []string{"b", "c"}},
		{"a\nb\nc\n", 3, []string{"a", "b", "c"}},
		{"a\nb\nc\n", 9, []string{"a", "b", "c"}},
		{"\n\n\n", 2, []string{"", ""}},
		{"a\n" + long + "\nb\n", 1, []string{"b"}},
		{"a\n" + long + "\nb\n", 3, []string{"a", long[:maxLine], long[:maxLine], "end", "b"}},
	} {
		inTime(t, func(_ *testing.T, l *aLog) {
			l.append(test.text)
			l.follow(test.lines) //nolint:errcheck // it ends as the test ends it
			l.want(test.want...)
		})
	}
}

func TestLogFollowSurvivesRotation(t *testing.T) {
	inTime(t, func(t *testing.T, l *aLog) {
		l.append("before\n")
		l.follow(1, //nolint:errcheck // it ends as the test ends it
			func() {
				l.append("last of the old\nhalf")
				if err := os.Rename(l.path, l.path+".1"); err != nil {
					t.Error(err)
				}
			},
			func() { l.append("first of the new\n") },
			func() { l.append("second\n") })
		l.want("before", "last of the old", "half", "first of the new", "second")
	})
}

func TestLogFollowSurvivesRotationBetweenTwoLooks(t *testing.T) {
	inTime(t, func(t *testing.T, l *aLog) {
		l.append("before\n")
		l.follow(0, func() { //nolint:errcheck // it ends as the test ends it
			l.append("old\n")
			if err := os.Rename(l.path, l.path+".1"); err != nil {
				t.Error(err)
			}
			l.append("new\n")
		})
		l.want("old", "new")
	})
}

func TestLogFollowSurvivesTruncation(t *testing.T) {
	inTime(t, func(t *testing.T, l *aLog) {
		l.append("a long line before\nhalf")
		l.follow(1, //nolint:errcheck // it ends as the test ends it
			func() {
				if err := os.Truncate(l.path, 0); err != nil {
					t.Error(err)
				}
			},
			func() { l.append("after\n") })
		l.want("half", "after")
	})
}

func TestLogFollowMakesUTF8(t *testing.T) {
	inTime(t, func(_ *testing.T, l *aLog) {
		l.append("caf\xe9\n")
		l.follow(1) //nolint:errcheck // it ends as the test ends it
		l.want("caf\uFFFD")
	})
}

func TestLogFollowOfWhatCannotBe(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		"relative":                 "bad_path",
		filepath.Join(dir, "none"): "not_found",
		dir:                        "not_a_file",
	} {
		if _, err := logFollow(t.Context(), FollowArgs{Path: path}, nil); typeOf(t, err) != want {
			t.Errorf("%s failed with %v, want %s", path, err, want)
		}
	}
	negative := -1
	_, err := logFollow(t.Context(), FollowArgs{Path: filepath.Join(dir, "x"), Lines: &negative}, nil)
	if typeOf(t, err) != "bad_arguments" {
		t.Errorf("negative lines failed with %v", err)
	}
}

func TestLogFollowEndsWhenNobodyTakes(t *testing.T) {
	l := newLog(t)
	l.append("one\n")
	gone := errors.New("gone")
	_, err := logFollow(t.Context(), FollowArgs{Path: l.path}, func(string) error { return gone })
	if !errors.Is(err, gone) {
		t.Errorf("ended with %v", err)
	}
}
