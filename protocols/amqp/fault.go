package amqp

import (
	"errors"
	"fmt"
	"strings"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// fault is an error that goes to the client: it closes the channel, or with a
// hard code the connection.
type fault struct {
	code wire.Code
	text string  // after the code's name
	id   wire.ID // the method at fault, 0 = none
}

// Error gives the reply text as clients see it.
func (f *fault) Error() string { return f.code.String() + " - " + f.text }

var sprintf = fmt.Sprintf

func faultf(code wire.Code, format string, args ...any) *fault {
	return &fault{code: code, text: fmt.Sprintf(format, args...)}
}

// codes is the one table from the kernel's errors to reply codes.
var codes = [...]wire.Code{
	kernel.CodeInternal:       wire.InternalError,
	kernel.CodeNotFound:       wire.NotFound,
	kernel.CodeExists:         wire.PreconditionFailed,
	kernel.CodeAccessRefused:  wire.AccessRefused,
	kernel.CodeLocked:         wire.ResourceLocked,
	kernel.CodePrecondition:   wire.PreconditionFailed,
	kernel.CodeInvalidName:    wire.PreconditionFailed,
	kernel.CodeInvalid:        wire.PreconditionFailed,
	kernel.CodeNotAllowed:     wire.AccessRefused,
	kernel.CodeNotImplemented: wire.NotImplemented,
	kernel.CodeTooLarge:       wire.PreconditionFailed,
	kernel.CodeCorrupt:        wire.InternalError,
	kernel.CodeLimit:          wire.PreconditionFailed,
	kernel.CodeUnavailable:    wire.InternalError,
	kernel.CodeUnknown:        wire.InternalError,
	kernel.CodeOutOfRange:     wire.PreconditionFailed,
	kernel.CodeSequenceGap:    wire.PreconditionFailed,
	kernel.CodeFenced:         wire.InternalError,
	kernel.CodeDropped:        wire.NotFound,
	kernel.CodePressure:       wire.PreconditionFailed, // RabbitMQ has no refusal of declarations for it
}

// refused turns a kernel error into the fault a client gets. A detail that
// names the object says it all.
func refused(vhost string, err error) *fault {
	e, ok := errors.AsType[*kernel.Error](err)
	if !ok {
		return faultf(wire.InternalError, "%v", err)
	}
	code := wire.InternalError
	if int(e.Code) < len(codes) {
		code = codes[e.Code]
	}
	switch {
	case e.Code == kernel.CodeLocked && e.Detail != "":
		return faultf(code, "%s.", e.Detail) // RabbitMQ's text, to the dot
	case e.Detail != "" && (e.Name == "" || strings.Contains(e.Detail, "'"+e.Name+"'")):
		return faultf(code, "%s", e.Detail)
	case e.Code == kernel.CodeNotFound || e.Code == kernel.CodeDropped:
		return faultf(code, "no %s '%s' in vhost '%s'", e.Object, e.Name, vhost)
	case e.Detail == "":
		return faultf(code, "%s '%s' in vhost '%s'", e.Object, e.Name, vhost)
	default:
		return faultf(code, "%s '%s' in vhost '%s': %s", e.Object, e.Name, vhost, e.Detail)
	}
}
