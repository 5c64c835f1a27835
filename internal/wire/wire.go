// Package wire holds what travels in harp's frames: the names of frames and features, the
// limits of frames, and the messages, which are made of harp's nouns, built-in types and raw
// msgpack. docs/protocol.md describes the conversations.
//
// Messages are maps with short keys. A receiver ignores keys it does not know; a
// sender that depends on a key being understood names a feature in Needs. Keys and
// frame numbers are never reused. Times are nanoseconds since 1970 UTC and durations
// nanoseconds, both integers of 64 bits; 0 means none. An error is the map of a harp.Failure.
package wire

import (
	"fmt"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/transport"
)

// Version is the protocol's version, in Hello and Welcome. Peers talk when they
// have the same; what differs within a version is told by features.
const Version = 2

// Limits of frames, in bytes unless it says otherwise. Those of what is in them are
// package harp's.
const (
	MaxControl = 64 << 10
	MaxPage    = 1 << 20   // of records or rows in one answer
	MaxRows    = 4000      // records or rows in one answer
	MaxChunk   = 256 << 10 // of a backup, in one frame

	// MaxMessage is what any limit may be raised to.
	MaxMessage = 2 << 20

	frameSlack = 64 << 10 // what a frame may hold beside its user values

	// MaxSubmission is what a request may take with its signature and the key's id, so that CALL
	// has room for what the dispatcher adds.
	MaxSubmission = MaxMessage + harp.MaxInfo + frameSlack - callRest

	// LongSubmission is from how many of these bytes on CALL may be a long body.
	LongSubmission = transport.LongBody - callRest

	callRest = 4 << 10 // what the dispatcher adds to CALL, at most
)

// Window is how many bytes of records an agent may send ahead of acknowledgement.
const (
	Window    = 1 << 20
	MinWindow = 64 << 10
)

// Frames with an agent. Call and Resume begin an exchange.
const (
	TypeCall     transport.Type = 1
	TypeResume   transport.Type = 2
	TypeAck      transport.Type = 3
	TypeCancel   transport.Type = 4
	TypeAccepted transport.Type = 8
	TypeRefused  transport.Type = 9  // End
	TypeNotNow   transport.Type = 10 // End
	TypeStarted  transport.Type = 11
	TypeRecords  transport.Type = 12
	TypeStopping transport.Type = 13
	TypeEnd      transport.Type = 14 // End
)

// Frames of the control exchange.
const (
	TypeHello      transport.Type = 32
	TypeWelcome    transport.Type = 33
	TypeUnwelcome  transport.Type = 34
	TypeFacts      transport.Type = 35
	TypeProcedures transport.Type = 36
	TypeHeld       transport.Type = 37
	TypeForget     transport.Type = 38
	TypeReady      transport.Type = 39
	TypeBeat       transport.Type = 40
)

// Frames with a caller. Each request begins an exchange of one answer: Reply or
// Failed, both End. Before that of a backup come any number of chunks.
const (
	TypeReply              transport.Type = 64
	TypeFailed             transport.Type = 65
	TypePing               transport.Type = 66
	TypeSubmit             transport.Type = 67
	TypeStatus             transport.Type = 68
	TypeResult             transport.Type = 69
	TypePull               transport.Type = 70
	TypeCancelJob          transport.Type = 71
	TypeJobs               transport.Type = 72
	TypeHosts              transport.Type = 73
	TypeHostProcs          transport.Type = 74
	TypeRefresh            transport.Type = 75
	TypeQueues             transport.Type = 76
	TypeCancelQueue        transport.Type = 77
	TypeRequest            transport.Type = 78
	TypeForceLost          transport.Type = 79
	TypeEvents             transport.Type = 80
	TypeChangeQueue        transport.Type = 81
	TypePrune              transport.Type = 82
	TypeBackup             transport.Type = 83
	TypeChunk              transport.Type = 84
	TypeExplain            transport.Type = 85
	TypePreview            transport.Type = 86
	TypeGroups             transport.Type = 87
	TypePutGroup           transport.Type = 88
	TypeDeleteGroup        transport.Type = 89
	TypeLabelHosts         transport.Type = 90
	TypeResults            transport.Type = 91
	TypeRemoveHost         transport.Type = 92
	TypeBatch              transport.Type = 93
	TypeBatches            transport.Type = 94
	TypeBatchPull          transport.Type = 95
	TypeChangeBatch        transport.Type = 96
	TypeSchedules          transport.Type = 97
	TypePutSchedule        transport.Type = 98
	TypeDeleteSchedule     transport.Type = 99
	TypeChangeSchedule     transport.Type = 100
	TypeTrigger            transport.Type = 101
	TypeBackfill           transport.Type = 102
	TypeNextTimes          transport.Type = 103
	TypeLedger             transport.Type = 104
	TypeRetentionRules     transport.Type = 106
	TypeSetRetention       transport.Type = 107
	TypeDeleteRetention    transport.Type = 108
	TypeDrift              transport.Type = 109
	TypePingHosts          transport.Type = 110
	TypeForgetDrift        transport.Type = 111
	TypeWindows            transport.Type = 113
	TypePutWindow          transport.Type = 114
	TypeDeleteWindow       transport.Type = 115
	TypeEndWindow          transport.Type = 116
	TypeWindowSpans        transport.Type = 117
	TypeJudgeStart         transport.Type = 118
	TypePauseHosts         transport.Type = 119
	TypeApply              transport.Type = 120
	TypeNotifications      transport.Type = 121
	TypePutNotification    transport.Type = 122
	TypeDeleteNotification transport.Type = 123
	TypeChangeNotification transport.Type = 124
)

// MaxBody is the cap of a frame's body by its type.
func MaxBody(t transport.Type) int {
	switch t {
	case TypeCall, TypeSubmit, TypePreview, TypePutSchedule, TypeHosts, TypePingHosts, TypeDrift:
		return MaxMessage + harp.MaxInfo + frameSlack
	case TypePutGroup:
		return harp.MaxGroupTarget + frameSlack
	case TypePutWindow, TypeWindowSpans:
		return harp.MaxCalendar + frameSlack
	case TypeEnd, TypeRecords, TypeReply, TypeApply:
		return 2*MaxMessage + frameSlack
	case TypeChunk:
		return MaxChunk + 64
	}
	return MaxControl
}

// codec encodes and decodes messages. In strings that are not UTF-8, as an error's text can
// be, U+FFFD takes the place of what is wrong: a peer would close the session. A user's value
// that is decoded is valid, and so is a JSON text.
var codec = msgpack.Codec{Message: true, Custom: nounWays}

// Encode returns the bytes of a message. A message that cannot be encoded is a defect of the
// program: Encode panics.
func Encode[M any](message M) []byte {
	room := usualSize
	if m, ok := any(&message).(interface{ sizeHint() int }); ok {
		room += m.sizeHint()
	}
	return Append(make([]byte, 0, room), &message)
}

// usualSize is how long most messages are.
const usualSize = 128

// Append appends what Encode returns of the message that is pointed to.
func Append[M any](b []byte, message *M) []byte {
	b, err := codec.Append(b, message)
	if err != nil {
		panic(fmt.Sprintf("wire: encode %T: %v", message, err))
	}
	return b
}

// Decode reads a message from bytes that came from outside. Errors:
// msgpack.ErrMalformed.
func Decode(b []byte, message any) error {
	if err := msgpack.Validate(b, msgpack.ProtocolLimits); err != nil {
		return err
	}
	return codec.Decode(b, message)
}

// DecodeBody is Decode for the body of a frame, which transport has validated. The message
// keeps parts of the body.
func DecodeBody(b []byte, message any) error { return codec.DecodeShared(b, message) }

// DecodeRow reads one of the [Rows] of an answer, of which the message keeps parts. A row
// may hold more values than a message. Errors: msgpack.ErrMalformed.
func DecodeRow(row []byte, message any) error { return codec.DecodeShared(row, message) }
