// The official Go client of RocketMQ 5 in one role, with its defaults; prints a JSON line for each event.
//
//	go5 ENDPOINTS ROLE TOPIC [ARGUMENTS]
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

func say(what string, values map[string]any) {
	line := map[string]any{"what": what}
	for name, value := range values {
		line[name] = value
	}
	text, _ := json.Marshal(line)
	fmt.Println(string(text))
}

func must(err error) {
	if err != nil {
		say("failed", map[string]any{"error": err.Error()})
		os.Exit(1)
	}
}

func waitForInput() {
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

func text(value *string) any {
	if value == nil {
		return nil
	}
	return *value
}

func shown(received *rmq.MessageView) map[string]any {
	return map[string]any{
		"body":       string(received.GetBody()),
		"tag":        text(received.GetTag()),
		"group":      text(received.GetMessageGroup()),
		"attempt":    received.GetDeliveryAttempt(),
		"properties": received.GetProperties(),
	}
}

func produce(config *rmq.Config, topic string, kind string, count int) {
	options := []rmq.ProducerOption{rmq.WithTopics(topic)}
	isTransaction := kind == "commit" || kind == "rollback" || kind == "check"
	if isTransaction {
		options = append(options, rmq.WithTransactionChecker(&rmq.TransactionChecker{
			Check: func(half *rmq.MessageView) rmq.TransactionResolution {
				say("checked", map[string]any{"body": string(half.GetBody())})
				return rmq.COMMIT
			},
		}))
	}
	producer, err := rmq.NewProducer(config, options...)
	must(err)
	must(producer.Start())
	for number := 0; number < count; number++ {
		body := fmt.Sprintf("%s-%d", kind, number)
		message := &rmq.Message{Topic: topic, Body: []byte(body)}
		message.SetKeys("key-" + body)
		message.AddProperty("sent-by", "go5")
		var receipts []*rmq.SendReceipt
		if isTransaction {
			transaction := producer.BeginTransaction()
			receipts, err = producer.SendWithTransaction(context.Background(), message, transaction)
			must(err)
			if kind == "commit" {
				must(transaction.Commit())
			} else if kind == "rollback" {
				must(transaction.RollBack())
			}
		} else {
			if kind == "fifo" {
				message.SetMessageGroup("group-" + strconv.Itoa(number%2))
			} else if kind == "delay" {
				message.SetDelayTimestamp(time.Now().Add(2 * time.Second))
			} else if number%2 == 0 {
				message.SetTag("even")
			} else {
				message.SetTag("odd")
			}
			receipts, err = producer.Send(context.Background(), message)
			must(err)
		}
		say("sent", map[string]any{"id": receipts[0].MessageID, "body": body})
	}
	say("ready", nil)
	waitForInput()
	_ = producer.GracefulStop()
}

// This release has no push consumer: a simple consumer that receives all the time stands in for it.
func consume(config *rmq.Config, topic string, group string, expression string, count int, how string) {
	config.ConsumerGroup = group
	consumer, err := rmq.NewSimpleConsumer(config,
		rmq.WithAwaitDuration(5*time.Second),
		rmq.WithSubscriptionExpressions(map[string]*rmq.FilterExpression{
			topic: rmq.NewFilterExpression(expression),
		}),
	)
	must(err)
	must(consumer.Start())
	say("ready", nil)
	go func() {
		for count != 0 {
			messages, err := consumer.Receive(context.Background(), 16, 15*time.Second)
			if err != nil {
				continue
			}
			for _, received := range messages {
				say("received", shown(received))
				if how != "ok" && received.GetDeliveryAttempt() == 1 {
					must(consumer.ChangeInvisibleDuration(received, time.Second))
					continue
				}
				must(consumer.Ack(context.Background(), received))
				count--
			}
		}
		say("done", nil)
	}()
	waitForInput()
	_ = consumer.GracefulStop()
}

func argument(position int, otherwise string) string {
	if len(os.Args) > position {
		return os.Args[position]
	}
	return otherwise
}

func main() {
	os.Setenv("rocketmq.client.logRoot", os.TempDir())
	rmq.ResetLogger()
	keys := &credentials.SessionCredentials{AccessKey: os.Getenv("PEER_ACCESS_KEY"), AccessSecret: os.Getenv("PEER_SECRET_KEY")}
	config := &rmq.Config{Endpoint: os.Args[1], Credentials: keys}
	topic := os.Args[3]
	switch os.Args[2] {
	case "produce":
		count, _ := strconv.Atoi(argument(5, "1"))
		produce(config, topic, os.Args[4], count)
	case "simple":
		count, _ := strconv.Atoi(os.Args[5])
		consume(config, topic, os.Args[4], "*", count, argument(6, "ok"))
	case "push":
		consume(config, topic, os.Args[4], argument(5, "*"), -1, argument(6, "ok"))
	}
}
