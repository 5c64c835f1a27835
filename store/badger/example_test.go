package badger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/harpcaller/harp/store/badger"
)

// A store in a directory, which one process at a time may have open.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "harp-example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()

	st, err := badger.Open(filepath.Join(dir, "data"), &badger.Options{LowSpace: 1 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = badger.Open(filepath.Join(dir, "data"), nil)
	fmt.Println(errors.Is(err, badger.ErrInUse))
	fmt.Println(st.Close())
	// Output:
	// true
	// <nil>
}

// What Backup wrote becomes a store again, in an empty directory.
func ExampleRestore() {
	dir, err := os.MkdirTemp("", "harp-example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	st, err := badger.Open(filepath.Join(dir, "data"), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	var backup bytes.Buffer
	fmt.Println(st.Backup(context.Background(), &backup), st.Close())

	_, err = badger.Restore(filepath.Join(dir, "data"), bytes.NewReader(backup.Bytes()), nil)
	fmt.Println(errors.Is(err, badger.ErrNotEmpty))
	restored, err := badger.Restore(filepath.Join(dir, "restored"), bytes.NewReader(backup.Bytes()), nil)
	fmt.Println(restored.Lost, "jobs had not ended", err)
	_, err = badger.Restore(filepath.Join(dir, "half"), bytes.NewReader(backup.Bytes()[:backup.Len()/2]), nil)
	fmt.Println(err != nil) // no complete backup
	// Output:
	// <nil> <nil>
	// true
	// 0 jobs had not ended <nil>
	// true
}
