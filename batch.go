package harp

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

// BatchState is where a batch is in its life. An unknown word, from a newer dispatcher, is kept
// as it is.
type BatchState string

// The states. A batch that has not ended is in one of the first three; one that has never changes
// again.
const (
	BatchRunning    BatchState = "running"    // reaches its hosts, one after the other
	BatchPaused     BatchState = "paused"     // starts nothing until it is resumed; its reason says why
	BatchCancelling BatchState = "cancelling" // starts nothing any more; what runs is asked to stop

	BatchSucceeded BatchState = "succeeded" // all its members did, but for those that were skipped
	BatchFailed    BatchState = "failed"
	BatchCancelled BatchState = "cancelled"
)

// Ended reports whether s is a final state.
func (s BatchState) Ended() bool {
	switch s {
	case BatchSucceeded, BatchFailed, BatchCancelled:
		return true
	default:
		return false
	}
}

// Why a batch is in its state: BatchStatus.Reason.
const (
	BatchReasonOperator  = "operator"  // paused: somebody asked for it
	BatchReasonWave      = "wave"      // paused: a wave is over and the next one is to be approved
	BatchReasonFailures  = "failures"  // paused, cancelling, failed: as many members failed as StopAfter says
	BatchReasonStopped   = "stopped"   // cancelling, failed: it was paused longer than a batch may be
	BatchReasonRequested = "requested" // cancelling, cancelled: somebody asked for it
	BatchReasonNoHost    = "no_host"   // failed: all its hosts were skipped
	BatchReasonRestored  = "restored"  // failed: the dispatcher's store was restored from a backup
)

// BatchPause says why a batch is paused.
type BatchPause struct {
	By     Principal `json:"by,omitzero" msgpack:"by"`                    // who asked for it; zero: nobody did
	Reason string    `json:"reason,omitempty" msgpack:"reason,omitempty"` // in the words of who asked
	Time   time.Time `json:"time" msgpack:"time"`                         // UTC
	Until  time.Time `json:"until,omitzero" msgpack:"until,omitempty"`    // then the batch is cancelled
}

// MemberID returns the id of the job that a batch has on a host, a UUID of version 8 (RFC 9562)
// that begins with the time of the batch's id. step counts from 1; of a batch that is no chain it is
// 1. It panics if batch is no id as NewID makes them.
func MemberID(batch, host string, step int) string {
	id := uuid.MustParse(batch)
	said := binary.BigEndian.AppendUint32(id[:], uint32(step)) //nolint:gosec // a step is a small number
	sum := sha256.Sum256(append(said, host...))
	member := id
	copy(member[8:], sum[:8])
	member[6] = member[6]&0x0f | 8<<4
	member[8] = member[8]&0x3f | 2<<6
	return member.String()
}
