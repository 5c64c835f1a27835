package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/synced"
)

func (c *cli) backupCommand() *cobra.Command {
	var unchecked bool
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write a copy of the dispatcher's store to a file",
		Long: `Write a copy of the dispatcher's store, as it is at one moment, to a file, while the
dispatcher keeps working. The copy is written beside the file and opened as a restore
would open it. Only a good one takes the file's name and replaces an earlier backup.

Opening it briefly takes as much space again in the file's folder.`,
		Example: "  harp backup /var/backups/harp-$(date +%F)",
		Args:    cobra.ExactArgs(1),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
			size, err := writeBackup(ctx, caller, args[0], !unchecked)
			if err != nil {
				return err
			}
			if c.format == formatJSON {
				return c.printObject(object{{"file", args[0]}, {"bytes", size}, {"verified", !unchecked}})
			}
			c.say("%d bytes in %s", size, args[0])
			return nil
		}),
	}
	cmd.Flags().BoolVar(&unchecked, "no-verify", false, "do not open the copy to check it")
	return cmd
}

// writeBackup writes a backup to a file and returns its size. Nothing is left of one
// that is not good.
func writeBackup(ctx context.Context, caller *harp.Caller, path string, verify bool) (size int64, err error) {
	partial := path + ".partial"
	f, err := os.OpenFile(partial, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			_ = os.Remove(partial) // err says more
		}
	}()
	if err := caller.Backup(ctx, f); err != nil {
		return 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if verify {
		if err := verifyBackup(ctx, f, filepath.Dir(path)); err != nil {
			return 0, err
		}
	}
	err, f = f.Close(), nil
	if err != nil {
		return 0, err
	}
	if err := os.Rename(partial, path); err != nil {
		return 0, err
	}
	return info.Size(), synced.Dir(filepath.Dir(path))
}
