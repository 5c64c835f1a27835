package measure

import (
	"bytes"
	"context"
	"errors"
)

// Payload is what goes in and, from an echo, comes out.
var Payload = bytes.Repeat([]byte{0x5a}, 100)

// NewEcho makes a Rig that keeps calls of echo in flight, by Loop. Each is to return the
// Payload.
func NewEcho(echo func(context.Context) ([]byte, error), closing func() error) Rig {
	return NewRig(func(ctx context.Context, p Point) (Sample, error) {
		return Loop(ctx, p, func(ctx context.Context) error {
			got, err := echo(ctx)
			if err == nil && !bytes.Equal(got, Payload) {
				err = errors.New("another result than was asked for")
			}
			return err
		})
	}, closing)
}
