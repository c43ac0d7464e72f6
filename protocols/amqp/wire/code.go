package wire

import "strconv"

// Code is a reply code.
type Code uint16

// The reply codes (specification section 1.2, RabbitMQ's uses).
const (
	ReplySuccess       Code = 200
	ContentTooLarge    Code = 311
	NoRoute            Code = 312
	NoConsumers        Code = 313
	ConnectionForced   Code = 320
	InvalidPath        Code = 402
	AccessRefused      Code = 403
	NotFound           Code = 404
	ResourceLocked     Code = 405
	PreconditionFailed Code = 406
	FrameErrorCode     Code = 501
	SyntaxErrorCode    Code = 502
	CommandInvalid     Code = 503
	ChannelErrorCode   Code = 504
	UnexpectedFrame    Code = 505
	ResourceError      Code = 506
	NotAllowed         Code = 530
	NotImplemented     Code = 540
	InternalError      Code = 541
)

var codeNames = map[Code]string{
	ReplySuccess: "REPLY_SUCCESS", ContentTooLarge: "CONTENT_TOO_LARGE", NoRoute: "NO_ROUTE",
	NoConsumers: "NO_CONSUMERS", ConnectionForced: "CONNECTION_FORCED", InvalidPath: "INVALID_PATH",
	AccessRefused: "ACCESS_REFUSED", NotFound: "NOT_FOUND", ResourceLocked: "RESOURCE_LOCKED",
	PreconditionFailed: "PRECONDITION_FAILED", FrameErrorCode: "FRAME_ERROR", SyntaxErrorCode: "SYNTAX_ERROR",
	CommandInvalid: "COMMAND_INVALID", ChannelErrorCode: "CHANNEL_ERROR", UnexpectedFrame: "UNEXPECTED_FRAME",
	ResourceError: "RESOURCE_ERROR", NotAllowed: "NOT_ALLOWED", NotImplemented: "NOT_IMPLEMENTED",
	InternalError: "INTERNAL_ERROR",
}

// String returns the name of the code.
func (c Code) String() string {
	if s, ok := codeNames[c]; ok {
		return s
	}
	return strconv.Itoa(int(c))
}

// Hard reports whether the code closes the connection and not just a channel.
func (c Code) Hard() bool {
	switch c {
	case ConnectionForced, InvalidPath, FrameErrorCode, SyntaxErrorCode, CommandInvalid, ChannelErrorCode,
		UnexpectedFrame, ResourceError, NotAllowed, NotImplemented, InternalError:
		return true
	}
	return false
}
