package mqtt

import (
	"errors"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// reasonOf is the one table from kernel errors to reason codes.
func reasonOf(err error) wire.Code {
	switch kernel.CodeOf(err) {
	case kernel.CodeAccessRefused, kernel.CodeLocked, kernel.CodeNotAllowed:
		return wire.NotAuthorized
	case kernel.CodeTooLarge:
		return wire.ImplementationError // PUBACK and SUBACK have no 0x95
	case kernel.CodeLimit, kernel.CodePressure, kernel.CodeUnavailable:
		return wire.QuotaExceeded
	case kernel.CodeInvalidName:
		return wire.TopicNameInvalid
	case kernel.CodeNotImplemented, kernel.CodeInvalid, kernel.CodePrecondition:
		return wire.ImplementationError
	default:
		return wire.UnspecifiedError
	}
}

// subscribeReason is reasonOf for SUBACK and UNSUBACK.
func subscribeReason(err error) wire.Code {
	if c := reasonOf(err); c != wire.TopicNameInvalid {
		return c
	}
	return wire.TopicFilterInvalid
}

// connectReason is reasonOf for CONNACK.
func connectReason(err error) wire.Code {
	switch kernel.CodeOf(err) {
	case kernel.CodeAccessRefused, kernel.CodeNotAllowed:
		return wire.NotAuthorized
	case kernel.CodeNotFound: // the tenant; RabbitMQ says so too
		return wire.BadCredentials
	case kernel.CodeInvalidName, kernel.CodeLocked: // it is another user's
		return wire.ClientIDNotValid
	case kernel.CodeLimit, kernel.CodePressure:
		return wire.QuotaExceeded
	case kernel.CodeUnavailable, kernel.CodeUnknown:
		return wire.ServerUnavailable
	default:
		return wire.UnspecifiedError
	}
}

// returnCode turns a CONNACK reason into a 3.1.1 return code; ok is false where
// that version has none and the connection is closed without an answer.
func returnCode(c wire.Code) (code wire.Code, ok bool) {
	switch c {
	case wire.UnsupportedVersion:
		return 1, true
	case wire.ClientIDNotValid:
		return 2, true
	case wire.ServerUnavailable, wire.ServerBusy, wire.QuotaExceeded, wire.UnspecifiedError, wire.ServerShuttingDown:
		return 3, true
	case wire.BadCredentials:
		return 4, true
	case wire.NotAuthorized, wire.Banned, wire.RetainNotSupported, wire.QoSNotSupported:
		return 5, true
	}
	return 0, false
}

// explain is the Reason String for an error: kernel errors are written for
// people, others stay inside.
func explain(err error) string {
	if e, ok := errors.AsType[*kernel.Error](err); ok {
		return e.Error()
	}
	return ""
}

// fault wraps an error in the stream with the reason code for it.
func fault(code wire.Code, text string) error { return &wire.Error{Code: code, Text: text} }
