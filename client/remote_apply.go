package client

import (
	"context"
	"fmt"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

// ApplyDocuments implements harp.ScheduleService.
func (r *remote) ApplyDocuments(ctx context.Context, id, managedBy string, documents []harp.Document, o harp.ApplyOptions) (harp.Applied, error) {
	message := wire.NewApply(id, managedBy, documents, o)
	size := 0
	for _, row := range message.Documents {
		size += len(row)
	}
	if most := wire.MaxBody(wire.TypeApply) - wire.MaxControl; size > most {
		return harp.Applied{}, &harp.FieldError{Field: "documents", Message: fmt.Sprintf("are %d bytes in all, at most %d", size, most)}
	}
	m, err := requestReply[wire.Applied](ctx, r, wire.TypeApply, message, false)
	if err != nil {
		return harp.Applied{}, err
	}
	done, err := m.Applied()
	if err != nil {
		return harp.Applied{}, unreadable(err)
	}
	return done, nil
}
