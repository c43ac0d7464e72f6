package wire

import "fmt"

// Packet types (MQTT 5.0, 2.1.2).
const (
	Connect     byte = 1
	Connack     byte = 2
	Publish     byte = 3
	Puback      byte = 4
	Pubrec      byte = 5
	Pubrel      byte = 6
	Pubcomp     byte = 7
	Subscribe   byte = 8
	Suback      byte = 9
	Unsubscribe byte = 10
	Unsuback    byte = 11
	Pingreq     byte = 12
	Pingresp    byte = 13
	Disconnect  byte = 14
	Auth        byte = 15

	willProperties byte = 16 // stands for the properties of a will in tables
)

// Protocol levels.
const (
	V311 byte = 4
	V5   byte = 5
)

// Code is a reason code (MQTT 5.0, 2.4).
type Code byte

// Reason codes that the server uses or understands.
const (
	Success                Code = 0x00
	GrantedQoS1            Code = 0x01
	DisconnectWithWill     Code = 0x04
	NoMatchingSubscribers  Code = 0x10
	NoSubscriptionExisted  Code = 0x11
	ContinueAuth           Code = 0x18
	ReAuthenticate         Code = 0x19
	UnspecifiedError       Code = 0x80
	MalformedPacket        Code = 0x81
	ProtocolError          Code = 0x82
	ImplementationError    Code = 0x83
	UnsupportedVersion     Code = 0x84
	ClientIDNotValid       Code = 0x85
	BadCredentials         Code = 0x86
	NotAuthorized          Code = 0x87
	ServerUnavailable      Code = 0x88
	ServerBusy             Code = 0x89
	Banned                 Code = 0x8A
	ServerShuttingDown     Code = 0x8B
	BadAuthMethod          Code = 0x8C
	KeepAliveTimeout       Code = 0x8D
	SessionTakenOver       Code = 0x8E
	TopicFilterInvalid     Code = 0x8F
	TopicNameInvalid       Code = 0x90
	PacketIDInUse          Code = 0x91
	PacketIDNotFound       Code = 0x92
	ReceiveMaximumExceeded Code = 0x93
	TopicAliasInvalid      Code = 0x94
	PacketTooLarge         Code = 0x95
	QuotaExceeded          Code = 0x97
	AdministrativeAction   Code = 0x98
	RetainNotSupported     Code = 0x9A
	QoSNotSupported        Code = 0x9B
)

// Error is a fault in what a peer sent, with the reason code that a version 5
// peer is told.
type Error struct {
	Code Code
	Text string // one phrase for people, fit for a Reason String
}

// Error formats the fault.
func (e *Error) Error() string { return fmt.Sprintf("%s (0x%02X)", e.Text, byte(e.Code)) }

func malformed(text string) *Error { return &Error{MalformedPacket, text} }

func violation(text string) *Error { return &Error{ProtocolError, text} }
