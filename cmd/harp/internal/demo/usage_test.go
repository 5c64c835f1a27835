package demo

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// write writes a file, and the folder that it is in.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestDiskUsage(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a"), "12345")
	write(t, filepath.Join(dir, "b", "c"), "123")
	write(t, filepath.Join(dir, "b", "d", "e"), "1234567")
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	var got list[UsageRecord]
	total, err := diskUsage(t.Context(), UsageArgs{Path: dir}, got.emit)
	if err != nil {
		t.Fatal(err)
	}
	if want := (UsageResult{Bytes: 15, Files: 3, Directories: 4}); total != want {
		t.Errorf("total %+v, want %+v", total, want)
	}
	want := []UsageRecord{
		{Path: dir, Bytes: 5, Files: 1},
		{Path: filepath.Join(dir, "b"), Bytes: 3, Files: 1},
		{Path: filepath.Join(dir, "b", "d"), Bytes: 7, Files: 1},
		{Path: filepath.Join(dir, "empty")},
	}
	if len(got.records) != len(want) {
		t.Fatalf("records %+v, want %+v", got.records, want)
	}
	for i := range want {
		if got.records[i] != want[i] {
			t.Errorf("record %d is %+v, want %+v", i, got.records[i], want[i])
		}
	}
}

func TestDiskUsageDoesNotFollowLinks(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	write(t, filepath.Join(elsewhere, "big"), "much that is elsewhere")
	for name, to := range map[string]string{"out": elsewhere, "loop": dir, "dead": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	var got list[UsageRecord]
	total, err := diskUsage(t.Context(), UsageArgs{Path: dir}, got.emit)
	if err != nil || total.Directories != 1 || total.Files != 3 {
		t.Errorf("total %+v, %v; the links are three files of one directory", total, err)
	}
	_, err = diskUsage(t.Context(), UsageArgs{Path: filepath.Join(dir, "out")}, got.emit)
	if typeOf(t, err) != "not_a_directory" {
		t.Errorf("a link to a directory failed with %v", err)
	}
}

func TestDiskUsageOfWhatCannotBe(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "")
	for path, want := range map[string]string{
		"relative":                 "bad_path",
		filepath.Join(dir, "none"): "not_found",
		filepath.Join(dir, "file"): "not_a_directory",
	} {
		if _, err := diskUsage(t.Context(), UsageArgs{Path: path}, nil); typeOf(t, err) != want {
			t.Errorf("%s failed with %v, want %s", path, err, want)
		}
	}
}

func TestDiskUsageStops(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a", "b"), "")
	_, err := diskUsage(ctx, UsageArgs{Path: dir}, func(UsageRecord) error { cancel(stop); return nil })
	if !errors.Is(err, stop) {
		t.Errorf("stopped with %v", err)
	}
}
