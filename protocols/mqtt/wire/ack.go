package wire

import "encoding/binary"

// AppendAck appends a PUBACK, PUBREC, PUBREL or PUBCOMP. A version 3.1.1 peer
// gets no code.
func AppendAck(dst []byte, pt, version byte, id uint16, code Code) []byte {
	first := pt << 4
	if pt == Pubrel {
		first |= 2
	}
	if version != V5 || code == Success {
		return append(dst, first, 2, byte(id>>8), byte(id))
	}
	return append(dst, first, 3, byte(id>>8), byte(id), byte(code))
}

// ParseAck reads the body of a PUBACK, PUBREC, PUBREL or PUBCOMP.
func ParseAck(pt, version byte, body []byte) (id uint16, code Code, err error) {
	if len(body) < 2 || version != V5 && len(body) != 2 {
		return 0, 0, malformed("acknowledgement of wrong length")
	}
	if id = binary.BigEndian.Uint16(body); id == 0 {
		return 0, 0, violation("packet identifier 0")
	}
	if len(body) == 2 {
		return id, Success, nil
	}
	if len(body) > 3 {
		_, rest, err := checkProperties(pt, body[3:])
		if err != nil {
			return 0, 0, err
		}
		if len(rest) > 0 {
			return 0, 0, malformed("bytes after the properties")
		}
	}
	return id, Code(body[2]), nil
}

// AppendPingreq appends a PINGREQ.
func AppendPingreq(dst []byte) []byte { return append(dst, Pingreq<<4, 0) }

// AppendPingresp appends a PINGRESP.
func AppendPingresp(dst []byte) []byte { return append(dst, Pingresp<<4, 0) }

// CheckFlags checks the reserved bits of a packet's first byte (2.1.3).
func CheckFlags(first byte) error {
	switch first >> 4 {
	case 0:
		return malformed("packet type 0")
	case Publish:
		return nil
	case Pubrel, Subscribe, Unsubscribe:
		if first&0x0F != 2 {
			return malformed("reserved flags of the fixed header")
		}
	default:
		if first&0x0F != 0 {
			return malformed("reserved flags of the fixed header")
		}
	}
	return nil
}
