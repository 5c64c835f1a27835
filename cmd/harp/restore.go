package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
)

func (c *cli) restoreCommand() *cobra.Command {
	var (
		dir string
		dry bool
	)
	cmd := &cobra.Command{
		Use:   "restore FILE --dir DIR",
		Short: "Restore a dispatcher's store from a backup",
		Long: `Restore a dispatcher's store from a backup, to a folder that is empty or does not exist.
This needs no running dispatcher; one whose data is this folder continues with it.

The new store differs from the one that was backed up: every job that had not ended then
is lost (restored), as it may have run since. Agents keep what they know about such jobs,
and about those made after the backup, for a week.`,
		Example: "  harp restore /var/backups/harp-2026-01-31 --dir /var/lib/harp",
		Args:    cobra.ExactArgs(1),
		RunE: c.does(func(ctx context.Context, args []string) error {
			if dry {
				return c.wouldRestore(ctx, args[0], dir)
			}
			did, err := restoreBackup(ctx, args[0], dir)
			if err != nil {
				return err
			}
			if c.format == formatJSON {
				return c.printObject(object{{"dir", dir}, {"store", did.ID}, {"from", did.From}, {"rows", did.Rows}, {"lost", did.Lost}})
			}
			c.pairs([][2]string{
				{"store", did.ID + " in " + dir},
				{"backup of", did.From},
			})
			c.say("jobs that had not ended and are lost (restored): %d", did.Lost)
			return nil
		}),
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the `folder` for the store, which must be empty or not exist")
	_ = cmd.MarkFlagRequired("dir") // fails only for a flag that is not there
	bindDryRun(cmd, &dry)
	return cmd
}

// wouldRestore restores a backup to a folder that it deletes again, beside the one that
// is meant, which must be empty or not there.
func (c *cli) wouldRestore(ctx context.Context, path, dir string) (err error) {
	switch there, err := os.ReadDir(dir); {
	case err == nil && len(there) > 0:
		return invalid("dir", "%s is not empty; a store is restored into a new folder", dir)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return invalid("dir", "%s", err)
	}
	scratch, err := os.MkdirTemp(filepath.Dir(filepath.Clean(dir)), "harp-dry-run-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	did, err := restoreBackup(ctx, path, scratch)
	if err != nil {
		return err
	}
	return c.would(object{{"dir", dir}, {"from", did.From}, {"rows", did.Rows}, {"lost", did.Lost}},
		"the backup of %s would become a store in %s; jobs that had not ended and would be lost (restored): %d", did.From, dir, did.Lost)
}

// restoreBackup makes a store of a backup's file.
func restoreBackup(ctx context.Context, path, dir string) (store.Restored, error) {
	f, err := os.Open(path)
	if err != nil {
		return store.Restored{}, invalid("file", "%s", err)
	}
	defer f.Close()
	did, err := badger.Restore(dir, readUntil(ctx, f), &badger.Options{Logger: quiet})
	if errors.Is(err, badger.ErrNotEmpty) {
		err = invalid("dir", "%s is not empty; a store is restored into a new folder", dir)
	}
	return did, err
}

// verifyBackup opens what was written as a restore would, in a folder of its own
// beside it.
func verifyBackup(ctx context.Context, f *os.File, beside string) (err error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(beside, "harp-verify-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	_, err = badger.Restore(dir, readUntil(ctx, f), &badger.Options{Logger: quiet})
	return err
}

// readUntil is a reader that ends with ctx.
func readUntil(ctx context.Context, r io.Reader) io.Reader {
	return bufio.NewReaderSize(&readerUntil{ctx.Err, r}, 1<<20)
}

type readerUntil struct {
	over func() error
	r    io.Reader
}

// Read implements io.Reader. Errors: the context's when it has ended.
func (r *readerUntil) Read(b []byte) (int, error) {
	if err := r.over(); err != nil {
		return 0, err
	}
	return r.r.Read(b)
}
