<?xml version="1.0" encoding="UTF-8"?>
<!-- A report over the order book: a page per customer with sorted orders and totals by recursion.
     Stands for the style sheets of SPEC's xalancbmk: keys, sorting, string work, recursion. -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
  <xsl:output method="html" indent="no" encoding="UTF-8"/>
  <xsl:key name="by-customer" match="order" use="@customer"/>
  <xsl:key name="by-item" match="line" use="@item"/>

  <xsl:template match="/book">
    <html>
      <body>
        <h1><xsl:value-of select="count(order)"/> orders</h1>
        <xsl:for-each select="customer">
          <xsl:sort select="name"/>
          <xsl:sort select="@id"/>
          <xsl:variable name="mine" select="key('by-customer', @id)"/>
          <h2><xsl:value-of select="translate(name, 'abcdefghijklmnopqrstuvwxyz', 'ABCDEFGHIJKLMNOPQRSTUVWXYZ')"/>, <xsl:value-of select="city"/></h2>
          <p><xsl:value-of select="count($mine/line)"/> lines, <xsl:value-of select="count($mine[@day &lt; 183])"/> orders in the first half</p>
          <table>
            <xsl:apply-templates select="$mine">
              <xsl:sort select="@day" data-type="number"/>
              <xsl:sort select="note"/>
              <xsl:sort select="@id"/>
            </xsl:apply-templates>
          </table>
        </xsl:for-each>
        <h1>Items</h1>
        <xsl:for-each select="order/line[generate-id() = generate-id(key('by-item', @item)[1])]">
          <xsl:sort select="sum(key('by-item', @item)/@count)" data-type="number" order="descending"/>
          <xsl:sort select="@item"/>
          <p><xsl:value-of select="@item"/>: <xsl:value-of select="sum(key('by-item', @item)/@count)"/> of <xsl:value-of select="count(key('by-item', @item)/..)"/> orders</p>
        </xsl:for-each>
      </body>
    </html>
  </xsl:template>

  <xsl:template match="order">
    <tr>
      <td><xsl:value-of select="@id"/></td>
      <td><xsl:value-of select="@day"/></td>
      <td>
        <xsl:for-each select="line[@count &gt; 5]">
          <xsl:sort select="@price * @count" data-type="number" order="descending"/>
          <xsl:value-of select="concat(@item, ' x', @count)"/><xsl:if test="position() != last()">; </xsl:if>
        </xsl:for-each>
      </td>
      <td>
        <xsl:call-template name="total"><xsl:with-param name="lines" select="line"/></xsl:call-template>
      </td>
      <td><xsl:call-template name="shorten"><xsl:with-param name="text" select="normalize-space(note)"/></xsl:call-template></td>
    </tr>
  </xsl:template>

  <xsl:template name="total">
    <xsl:param name="lines"/>
    <xsl:param name="so-far" select="0"/>
    <xsl:choose>
      <xsl:when test="$lines">
        <xsl:call-template name="total">
          <xsl:with-param name="lines" select="$lines[position() &gt; 1]"/>
          <xsl:with-param name="so-far" select="$so-far + $lines[1]/@count * $lines[1]/@price"/>
        </xsl:call-template>
      </xsl:when>
      <xsl:otherwise><xsl:value-of select="round($so-far * 100) div 100"/></xsl:otherwise>
    </xsl:choose>
  </xsl:template>

  <xsl:template name="shorten">
    <xsl:param name="text"/>
    <xsl:if test="contains($text, ' ')">
      <xsl:value-of select="substring(substring-before($text, ' '), 1, 1)"/>
      <xsl:call-template name="shorten"><xsl:with-param name="text" select="substring-after($text, ' ')"/></xsl:call-template>
    </xsl:if>
  </xsl:template>
</xsl:stylesheet>
