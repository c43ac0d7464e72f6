package kernel

import (
	"errors"
	"fmt"
)

// Code says what kind of refusal an Error is. Adapters map codes, and nothing
// else, to the codes of their protocol.
type Code uint8

// The codes. The comment names the situation, not a protocol.
const (
	CodeInternal       Code = iota // a defect or a stopped part; nothing was done
	CodeNotFound                   // the named object does not exist
	CodeExists                     // the named object exists and must not
	CodeAccessRefused              // the identity may not do that
	CodeLocked                     // the object belongs to another connection
	CodePrecondition               // the object exists with other properties, or a condition is not met
	CodeInvalidName                // the name is not allowed
	CodeInvalid                    // an argument has a value that is not allowed
	CodeNotAllowed                 // the act is never allowed on this object
	CodeNotImplemented             // the argument or act is known and not supported
	CodeTooLarge                   // a record or batch is over the limit
	CodeCorrupt                    // a batch fails its checks
	CodeLimit                      // a named limit is reached (queues, members, bytes)
	CodeUnavailable                // not now: no leader, starting, stopping; certainly not done, may be retried
	CodeUnknown                    // the outcome is unknown: it may or may not have happened
	CodeOutOfRange                 // the offset lies outside the log
	CodeSequenceGap                // the producer's sequence skips ahead
	CodeFenced                     // the producer, member or session has been replaced by a newer one
	CodeDropped                    // the object was deleted while in use
	CodePressure                   // the node is short of disk or memory: certainly not done, and possible again when that ends
)

// Error is every error the kernel returns on purpose.
type Error struct {
	Code   Code
	Object string // kind of object: "exchange", "queue", "topic", "group", "user", ...
	Name   string // its name, as the caller gave it
	Detail string // one sentence for people, without trailing dot
}

// Error formats the error for people.
func (e *Error) Error() string {
	switch {
	case e.Object == "":
		return e.Detail
	case e.Detail == "":
		return fmt.Sprintf("%s '%s'", e.Object, e.Name)
	default:
		return fmt.Sprintf("%s '%s': %s", e.Object, e.Name, e.Detail)
	}
}

// Is lets errors.Is(err, &Error{Code: c}) match any error of code c.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Object == "" && t.Detail == ""
}

// Errorf makes an Error about an object.
func Errorf(code Code, object, name, format string, args ...any) *Error {
	return &Error{Code: code, Object: object, Name: name, Detail: fmt.Sprintf(format, args...)}
}

// CodeOf returns the code of err, or CodeInternal if it carries none.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}
