package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/trivium-mq/trivium/kernel"
)

// codes is the one table from the kernel's refusals to Kafka's error codes
// (Kafka protocol guide, "Error Codes"). The code depends on what the request
// acts on, where Kafka has several for one meaning.
var codes = map[kernel.Code]struct{ topic, group *kerr.Error }{
	kernel.CodeInternal:       {kerr.UnknownServerError, kerr.UnknownServerError},
	kernel.CodeNotFound:       {kerr.UnknownTopicOrPartition, kerr.GroupIDNotFound},
	kernel.CodeExists:         {kerr.TopicAlreadyExists, kerr.InvalidRequest},
	kernel.CodeAccessRefused:  {kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed},
	kernel.CodeLocked:         {kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed},
	kernel.CodePrecondition:   {kerr.PolicyViolation, kerr.NonEmptyGroup},
	kernel.CodeInvalidName:    {kerr.InvalidTopicException, kerr.InvalidGroupID},
	kernel.CodeInvalid:        {kerr.InvalidRequest, kerr.InvalidRequest},
	kernel.CodeNotAllowed:     {kerr.PolicyViolation, kerr.PolicyViolation},
	kernel.CodeNotImplemented: {kerr.UnsupportedVersion, kerr.UnsupportedVersion},
	kernel.CodeTooLarge:       {kerr.MessageTooLarge, kerr.OffsetMetadataTooLarge},
	kernel.CodeCorrupt:        {kerr.CorruptMessage, kerr.UnknownServerError},
	kernel.CodeLimit:          {kerr.PolicyViolation, kerr.GroupMaxSizeReached},
	kernel.CodeUnavailable:    {kerr.NotLeaderForPartition, kerr.CoordinatorNotAvailable},
	kernel.CodeUnknown:        {kerr.NotEnoughReplicasAfterAppend, kerr.CoordinatorNotAvailable},
	kernel.CodeOutOfRange:     {kerr.OffsetOutOfRange, kerr.OffsetOutOfRange},
	kernel.CodeSequenceGap:    {kerr.OutOfOrderSequenceNumber, kerr.UnknownServerError},
	kernel.CodeFenced:         {kerr.InvalidProducerEpoch, kerr.FencedInstanceID},
	kernel.CodePressure:       {kerr.KafkaStorageError, kerr.CoordinatorNotAvailable},
	kernel.CodeDropped:        {kerr.UnknownTopicOrPartition, kerr.GroupIDNotFound},
}

// topicCode is the code of an error about a topic or partition.
func topicCode(err error) int16 {
	if err == nil {
		return 0
	}
	return codes[kernel.CodeOf(err)].topic.Code
}

// produceCode is topicCode for a batch that was not stored. A limit, of which a
// low disk is the usual one, passes: producers try again after this code.
func produceCode(err error) int16 {
	if kernel.CodeOf(err) == kernel.CodeLimit {
		return kerr.KafkaStorageError.Code
	}
	return topicCode(err)
}

// metadataCode narrows the code of a topic that is not described to one for all that
// passes: librdkafka takes any other for permanent (rd_kafka_parse_Metadata) and fails
// what waits for the topic.
func metadataCode(code int16) int16 {
	switch code {
	case kerr.NotLeaderForPartition.Code, kerr.NotEnoughReplicasAfterAppend.Code, kerr.KafkaStorageError.Code:
		return kerr.LeaderNotAvailable.Code
	}
	return code
}

// groupCode is the code of an error about a consumer group.
func groupCode(err error) int16 {
	if err == nil {
		return 0
	}
	return codes[kernel.CodeOf(err)].group.Code
}

// batchCode is the code of a batch that failed its checks.
func batchCode(err error) int16 {
	switch kernel.CodeOf(err) {
	case kernel.CodeCorrupt:
		return kerr.CorruptMessage.Code
	case kernel.CodeNotImplemented:
		return kerr.UnsupportedForMessageFormat.Code
	case kernel.CodeTooLarge:
		return kerr.MessageTooLarge.Code
	default:
		return kerr.InvalidRecord.Code
	}
}

// fetchCode is topicCode, narrowed to the codes that consumers expect in a
// fetch answer: Java's FetchCollector fails on any other.
func fetchCode(err error) int16 {
	switch kernel.CodeOf(err) {
	case kernel.CodeNotFound, kernel.CodeDropped, kernel.CodeUnavailable, kernel.CodeOutOfRange,
		kernel.CodeAccessRefused, kernel.CodeLocked, kernel.CodeCorrupt:
		return topicCode(err)
	default:
		return kerr.UnknownServerError.Code
	}
}

// message returns err's text for the answers that have a field for it.
func message(err error) *string {
	if err == nil {
		return nil
	}
	text := err.Error()
	return &text
}
