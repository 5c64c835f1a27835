package lab

import (
	"errors"
	"slices"
)

// Closers close what was made, the last first.
type Closers []func() error

// Add adds one more.
func (c *Closers) Add(f func() error) { *c = append(*c, f) }

// Close closes all of them.
func (c *Closers) Close() error {
	var errs []error
	for _, f := range slices.Backward(*c) {
		errs = append(errs, f())
	}
	*c = nil
	return errors.Join(errs...)
}

// Unless closes all of them if there was an error: what was half made is taken down.
func (c *Closers) Unless(err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(err, c.Close())
}
